#pragma once
// Folders of checkpoints on disk: their names, how one appears, and which ones go. For one process at a time.

#include <cstdint>
#include <filesystem>
#include <string>

namespace trireme {

std::string StepFolderName(int64_t step);  // "step-00000200"

// Makes directory/step-N.tmp, empty, with the folders above it; returns its path.
std::filesystem::path MakePartialFolder(const std::filesystem::path& directory, int64_t step);

// Gives the finished step-N.tmp its name (a folder that has it is replaced and removed), moves `latest` to it, and then
// removes the oldest complete checkpoints until `keep` stay (0: all stay), this one always among them, and the remains
// of interrupted saves. A kill at any moment leaves complete checkpoints only, and `latest` on one of them.
void PublishFolder(const std::filesystem::path& directory, int64_t step, int64_t keep);

}  // namespace trireme
