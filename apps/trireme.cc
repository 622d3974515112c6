#include <cstdio>
#include <exception>

#include "apps/commands.h"
#include "base/error.h"

int main(int argc, char** argv) {
  CLI::App app("Trireme: plans, trains and explains data-, tensor- and pipeline-parallel training", "trireme");
  app.require_subcommand(1);
  int exit_code = 0;
  trireme::apps::AddTrain(app, exit_code);
  trireme::apps::AddMesh(app, exit_code);
  trireme::apps::AddData(app, exit_code);
  trireme::apps::AddCheckpoint(app, exit_code);
  trireme::apps::AddGenerate(app, exit_code);
  trireme::apps::AddBench(app, exit_code);
  trireme::apps::AddDoctor(app, exit_code);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& e) {
    return app.exit(e) == 0 ? 0 : 2;
  } catch (const trireme::UserError& e) {
    std::fprintf(stderr, "error: %s\n", e.what());
    return 2;
  } catch (const std::exception& e) {
    std::fprintf(stderr, "error: %s\n", e.what());
    return 1;
  }
  return exit_code;
}
