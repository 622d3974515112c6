#include <fmt/format.h>

#include <cstdio>
#include <memory>

#include "apps/commands.h"
#include "base/error.h"
#include "checkpoint/checkpoint.h"

namespace trireme::apps {

void AddCheckpoint(CLI::App& app, int& exit_code) {
  CLI::App* command = app.add_subcommand("checkpoint", "saved training state: look inside, verify");
  command->require_subcommand(1);
  auto directory = std::make_shared<std::string>();

  CLI::App* info = command->add_subcommand("info", "step and tensors");
  info->add_option("dir", *directory, "a step-N folder")->required();
  info->callback([directory] {
    const CheckpointReader reader(*directory);
    fmt::print("step {}\n", reader.step());
    for (const std::string& name : reader.Names()) fmt::print("{:<64} {}\n", name, ShapeText(reader.ShapeOf(name)));
  });

  CLI::App* verify = command->add_subcommand("verify", "reads every file and compares its checksum");
  verify->add_option("dir", *directory, "a step-N folder")->required();
  verify->callback([directory, &exit_code] {
    const CheckpointReader reader(*directory);
    try {
      reader.VerifyChecksums();
      fmt::print("step {}: {} tensors, every checksum agrees\n", reader.step(), reader.Names().size());
    } catch (const Error& e) {
      fmt::print("{}\n", e.what());
      exit_code = 3;
    }
  });
}

}  // namespace trireme::apps
