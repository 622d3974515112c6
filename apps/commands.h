#pragma once
// The subcommands of the program, one file each. Each Add* registers its options on the command line and returns
// nothing; when the user chose it, its callback runs and sets `exit_code` (0 done, 1 failed, 2 wrong input, 3 findings,
// 130 interrupted). argv, environment and exit codes are read and set in apps/ only.

#include <CLI/CLI.hpp>

namespace trireme::apps {

void AddTrain(CLI::App& app, int& exit_code);
void AddMesh(CLI::App& app, int& exit_code);
void AddData(CLI::App& app, int& exit_code);
void AddCheckpoint(CLI::App& app, int& exit_code);
void AddGenerate(CLI::App& app, int& exit_code);
void AddBench(CLI::App& app, int& exit_code);
void AddDoctor(CLI::App& app, int& exit_code);

}  // namespace trireme::apps
