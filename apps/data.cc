#include <cstdio>
#include <memory>

#include "apps/commands.h"
#include "base/error.h"
#include "data/pack.h"

namespace trireme::apps {

void AddData(CLI::App& app, int& exit_code) {
  CLI::App* command = app.add_subcommand("data", "token files: pack text, look inside");
  command->require_subcommand(1);

  struct Pack {
    std::vector<std::string> inputs;
    std::string tokenizer = "bytes", output;
  };
  auto pack = std::make_shared<Pack>();
  CLI::App* pack_command =
      command->add_subcommand("pack", "text files to PREFIX.bin and PREFIX.idx, one document a file");
  pack_command->add_option("inputs", pack->inputs, "text files")->required();
  pack_command->add_option("--tokenizer", pack->tokenizer, "bytes");
  pack_command->add_option("-o,--output", pack->output, "PREFIX")->required();
  pack_command->callback([pack] {
    if (pack->tokenizer != "bytes") FailUser("--tokenizer {}: this version knows bytes", pack->tokenizer);
    PackText({pack->inputs.begin(), pack->inputs.end()}, pack->output);
    std::fputs(TokenFileInfo(pack->output).c_str(), stderr);
  });

  auto prefix = std::make_shared<std::string>();
  CLI::App* info = command->add_subcommand("info", "size, documents, type and largest id of a token file");
  info->add_option("prefix", *prefix, "PREFIX of a .bin/.idx pair")->required();
  info->callback([prefix] { std::fputs(TokenFileInfo(*prefix).c_str(), stdout); });
}

}  // namespace trireme::apps
