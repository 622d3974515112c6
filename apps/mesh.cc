#include <cstdio>
#include <memory>

#include "apps/commands.h"
#include "config/config.h"
#include "mesh/mesh.h"

namespace trireme::apps {

void AddMesh(CLI::App& app, int& exit_code) {
  struct Options {
    std::string config;
    std::vector<std::string> set;
    int ranks = 0;
    bool json = false;
  };
  auto options = std::make_shared<Options>();
  CLI::App* command = app.add_subcommand("mesh", "ranks, coordinates and every process group of a layout");
  command->add_option("config", options->config, "configuration file")->required();
  command->add_option("--set", options->set, "path=value: overrides a field");
  command->add_option("--ranks", options->ranks, "must agree with the degrees, or fills dp");
  command->add_flag("--json", options->json, "one JSON document");
  command->callback([options] {
    Config config = LoadConfig(options->config);
    for (const std::string& assignment : options->set) SetField(config, assignment);
    ResolveConfig(config, options->ranks);
    const Mesh mesh(config.parallel);
    std::puts((options->json ? MeshJson(mesh) : MeshText(mesh)).c_str());
  });
}

}  // namespace trireme::apps
