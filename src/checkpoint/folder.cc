#include "checkpoint/folder.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstdio>
#include <cstring>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/file.h"
#include "checkpoint/checkpoint.h"
#include "checkpoint/manifest.h"

namespace trireme {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kPartial = ".tmp";        // unfinished, or about to be removed
constexpr std::string_view kReplaced = ".replaced";  // complete, while a folder of the same step takes its name

void Rename(const fs::path& from, const fs::path& to) {
  if (::rename(from.c_str(), to.c_str()) != 0) {
    const int code = errno;
    Fail("cannot rename {} to {}: {} (errno {})", from.string(), to.string(), std::strerror(code), code);
  }
}

void RemoveTree(const fs::path& path) {
  std::error_code error;
  fs::remove_all(path, error);
  if (error) Fail("cannot remove {}: {} (errno {})", path.string(), error.message(), error.value());
}

fs::path WithSuffix(fs::path path, std::string_view suffix) { return path += suffix; }

struct StepFolder {
  int64_t step = 0;
  std::string suffix;
  fs::path path;
};

std::vector<StepFolder> StepFolders(const fs::path& directory) {
  std::vector<StepFolder> folders;
  std::error_code error;
  for (fs::directory_iterator it(directory, error), end; !error && it != end; it.increment(error)) {
    const std::string name = it->path().filename().string();
    constexpr std::string_view kPrefix = "step-";
    if (!name.starts_with(kPrefix)) continue;
    StepFolder folder{0, "", it->path()};
    const char* last = name.data() + name.size();
    const auto [rest, code] = std::from_chars(name.data() + kPrefix.size(), last, folder.step);
    if (code != std::errc() || folder.step < 0) continue;
    folder.suffix = std::string(rest, last);
    folders.push_back(std::move(folder));
  }
  return folders;
}

// Folders that have the name of a checkpoint, newest first.
std::vector<StepFolder> Candidates(const fs::path& directory) {
  std::vector<StepFolder> folders = StepFolders(directory);
  std::erase_if(folders, [](const StepFolder& f) { return !f.suffix.empty() && f.suffix != kReplaced; });
  std::sort(folders.begin(), folders.end(), [](const StepFolder& a, const StepFolder& b) {
    return std::pair(-a.step, a.suffix) < std::pair(-b.step, b.suffix);
  });
  return folders;
}

bool IsComplete(const fs::path& checkpoint) {
  try {
    ReadManifest(checkpoint);
    return true;
  } catch (const Error&) {
    return false;
  }
}

void PointLatest(const fs::path& directory, const std::string& name) {
  const fs::path link = directory / "latest", temporary = directory / "latest.tmp";
  RemoveTree(temporary);
  if (::symlink(name.c_str(), temporary.c_str()) != 0) {
    const int code = errno;
    Fail("cannot make the link {}: {} (errno {})", temporary.string(), std::strerror(code), code);
  }
  Rename(temporary, link);
  SyncDirectory(directory);
}

// A folder being removed must not look like a checkpoint with files missing.
void RemoveCheckpoint(const fs::path& path) {
  const fs::path hidden = WithSuffix(path, kPartial);
  RemoveTree(hidden);
  Rename(path, hidden);
  RemoveTree(hidden);
}

void Rotate(const fs::path& directory, const fs::path& newest, int64_t keep) {
  for (const StepFolder& folder : StepFolders(directory)) {
    if (folder.suffix.ends_with(kPartial)) RemoveTree(folder.path);
  }
  if (keep == 0) return;
  int64_t kept = 1;
  for (const StepFolder& folder : Candidates(directory)) {
    // Incomplete ones do not count, and are not ours to remove: nobody knows how they came about.
    if (folder.path == newest || !IsComplete(folder.path)) continue;
    if (++kept > keep) RemoveCheckpoint(folder.path);
  }
}

}  // namespace

std::string StepFolderName(int64_t step) { return fmt::format("step-{:08}", step); }

fs::path MakePartialFolder(const fs::path& directory, int64_t step) {
  const fs::path partial = directory / (StepFolderName(step) + std::string(kPartial));
  RemoveTree(partial);
  std::error_code error;
  fs::create_directories(partial, error);
  if (error) Fail("cannot create {}: {} (errno {})", partial.string(), error.message(), error.value());
  return partial;
}

void PublishFolder(const fs::path& directory, int64_t step, int64_t keep) {
  const fs::path target = directory / StepFolderName(step);
  const fs::path partial = WithSuffix(target, kPartial), replaced = WithSuffix(target, kReplaced);
  SyncDirectory(partial);
  if (!fs::exists(fs::symlink_status(target))) {
    Rename(partial, target);
  } else if (::renameat2(AT_FDCWD, partial.c_str(), AT_FDCWD, target.c_str(), RENAME_EXCHANGE) != 0) {
    // The file system cannot exchange two names. Between the two renames the old folder counts under its other name.
    RemoveTree(replaced);
    Rename(target, replaced);
    Rename(partial, target);
  }
  SyncDirectory(directory);
  PointLatest(directory, target.filename().string());
  RemoveTree(partial);
  RemoveTree(replaced);
  Rotate(directory, target, keep);
}

std::optional<fs::path> LatestCheckpoint(const fs::path& directory) {
  for (const StepFolder& folder : Candidates(directory)) {
    if (IsComplete(folder.path)) return folder.path;
  }
  return std::nullopt;
}

}  // namespace trireme
