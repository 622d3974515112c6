// Every command that README and docs/ show is run as it stands there, in the order of each document, by a user who has
// just cloned the project: only training is cut to a few steps.

#include <gtest/gtest.h>

#include <filesystem>
#include <regex>
#include <sstream>

#include "base/file.h"
#include "testing/process.h"

namespace trireme::testing {
namespace {

namespace fs = std::filesystem;

// The words of the "./dev ..." lines in the document's fenced blocks, except those that ./dev itself answers.
std::vector<std::vector<std::string>> Commands(const fs::path& document) {
  static const std::regex own("build|test|soak|check|format");
  std::vector<std::vector<std::string>> commands;
  std::istringstream in(ReadFile(document.string()));
  bool fenced = false;
  for (std::string line; std::getline(in, line);) {
    if (line.starts_with("```")) fenced = !fenced;
    if (!fenced || !line.starts_with("./dev ")) continue;
    line = line.substr(6, line.find(" #") == std::string::npos ? std::string::npos : line.find(" #") - 6);
    std::vector<std::string> words;
    static const std::regex word(R"re("([^"]*)"|(\S+))re");
    for (std::sregex_iterator it(line.begin(), line.end(), word), end; it != end; ++it) {
      words.push_back((*it)[1].matched ? (*it)[1].str() : (*it)[2].str());
    }
    if (!std::regex_match(words.at(0), own)) commands.push_back(std::move(words));
  }
  return commands;
}

std::vector<fs::path> Documents() {
  std::vector<fs::path> documents{fs::path(TRIREME_SOURCE) / "README.md", fs::path(TRIREME_SOURCE) / "CONTRIBUTING.md"};
  for (const auto& entry : fs::directory_iterator(fs::path(TRIREME_SOURCE) / "docs")) {
    if (entry.path().extension() == ".md") documents.push_back(entry.path());
  }
  return documents;
}

class DocumentsTest : public ::testing::TestWithParam<fs::path> {};

TEST_P(DocumentsTest, ItsCommandsRun) {
  std::string folder = (fs::temp_directory_path() / "trireme-documents-XXXXXX").string();
  ASSERT_NE(::mkdtemp(folder.data()), nullptr);
  fs::create_directory_symlink(fs::path(TRIREME_SOURCE) / "configs", fs::path(folder) / "configs");
  fs::create_directory(fs::path(folder) / "data");
  std::string text;  // the place of the King James text
  for (int i = 0; i < 3000; ++i) text += "And God said, Let there be " + std::to_string(i) + " lights\n";
  WriteFileAtomically(folder + "/data/kjv.txt", text);
  const fs::path before = fs::current_path();
  fs::current_path(folder);
  for (std::vector<std::string> words : Commands(GetParam())) {
    std::string shown = "./dev";
    for (const std::string& word : words) shown += " " + word;
    if (words[0] == "train") {
      for (const char* word : {"--set", "train.steps=2", "--set", "log.sample=8"}) words.push_back(word);
    }
    for (size_t i = 1; i < words.size(); ++i) {
      if (words[i - 1] == "--tokens") words[i] = "8";
    }
    const Outcome outcome = RunProgram(words);
    // doctor diff answers 3 where runs differ, as those that a document compares do.
    const bool fine = outcome.exit_code == 0 || (words[0] == "doctor" && outcome.exit_code == 3);
    EXPECT_TRUE(fine) << shown << "\nexit code " << outcome.exit_code << "\n" << outcome.output;
  }
  fs::current_path(before);
  fs::remove_all(folder);
}

INSTANTIATE_TEST_SUITE_P(Each, DocumentsTest, ::testing::ValuesIn(Documents()), [](const auto& info) {
  return std::regex_replace(info.param.stem().string(), std::regex("[^A-Za-z0-9]"), "_");
});

}  // namespace
}  // namespace trireme::testing
