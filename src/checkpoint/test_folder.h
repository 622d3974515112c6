#pragma once
// For the tests of this module: a folder that goes with the test, and errors as text.

#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <functional>
#include <string>

#include "base/error.h"
#include "base/file.h"

namespace trireme::testing {

class TestFolder {
 public:
  TestFolder() {
    std::string name = (std::filesystem::path(::testing::TempDir()) / "checkpoint-XXXXXX").string();
    TRIREME_CHECK(::mkdtemp(name.data()) != nullptr, "{}", name);
    path_ = name;
  }
  ~TestFolder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  TestFolder(const TestFolder&) = delete;
  TestFolder& operator=(const TestFolder&) = delete;

  const std::filesystem::path& path() const { return path_; }
  std::filesystem::path operator/(const std::string& name) const { return path_ / name; }

 private:
  std::filesystem::path path_;
};

inline void WriteText(const std::filesystem::path& path, std::string_view text) {
  FileWriter writer(path);
  writer.Write(text);
  writer.Close();
}

// The message of the UserError that `body` throws; another outcome fails the test.
inline std::string UserErrorOf(const std::function<void()>& body) {
  try {
    body();
  } catch (const UserError& error) {
    return error.what();
  }
  ADD_FAILURE() << "expected a UserError";
  return "";
}

}  // namespace trireme::testing
