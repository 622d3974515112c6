#include <cstdio>
#include <memory>

#include "apps/commands.h"
#include "doctor/run_diff.h"

namespace trireme::apps {

void AddDoctor(CLI::App& app, int& exit_code) {
  CLI::App* command = app.add_subcommand("doctor", "finds out why runs differ");
  command->require_subcommand(1);
  struct Options {
    std::string a, b;
    double tolerance = 0;
    bool json = false;
  };
  auto options = std::make_shared<Options>();
  CLI::App* diff = command->add_subcommand(
      "diff", "the first step, kind and tensor in which two runs differ; exit code 3 when they do");
  diff->add_option("run_a", options->a, "folder of a run")->required();
  diff->add_option("run_b", options->b, "folder of another")->required();
  diff->add_option("--tolerance", options->tolerance,
                   "relative differences up to this do not count (0: every bit does)")
      ->check(CLI::NonNegativeNumber);
  diff->add_flag("--json", options->json, "one JSON document");
  diff->callback([options, &exit_code] {
    const RunDiff difference = DiffRuns(options->a, options->b, options->tolerance);
    std::fputs(options->json ? (RunDiffJson(difference) + "\n").c_str() : RunDiffText(difference).c_str(), stdout);
    exit_code = difference.first ? 3 : 0;
  });
}

}  // namespace trireme::apps
