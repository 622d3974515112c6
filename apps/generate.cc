#include "train/generate.h"

#include <cstdio>
#include <memory>

#include "apps/commands.h"

namespace trireme::apps {

void AddGenerate(CLI::App& app, int& exit_code) {
  auto request = std::make_shared<GenerateRequest>();
  CLI::App* command = app.add_subcommand("generate", "continues a text with a trained model");
  command->add_option("--checkpoint", request->checkpoint, "a step-N folder, or a run's folder (its newest)")
      ->required();
  command->add_option("--prompt", request->prompt, "the text to continue")->required();
  command->add_option("--tokens", request->tokens, "how many to draw")->check(CLI::PositiveNumber);
  command->add_option("--temperature", request->temperature, "0: always the likeliest")->check(CLI::NonNegativeNumber);
  command->add_option("--seed", request->seed, "the same seed draws the same text");
  command->callback([request] {
    std::fputs(request->prompt.c_str(), stdout);
    Generate(*request, [](std::string_view piece) {
      std::fwrite(piece.data(), 1, piece.size(), stdout);
      std::fflush(stdout);
    });
    std::fputc('\n', stdout);
  });
}

}  // namespace trireme::apps
