#include <fmt/format.h>
#include <unistd.h>

#include <cstdio>
#include <ctime>
#include <filesystem>
#include <memory>

#include "apps/commands.h"
#include "apps/process.h"
#include "base/error.h"
#include "mesh/mesh.h"
#include "train/generate.h"
#include "train/trainer.h"

namespace trireme::apps {
namespace {

std::string DefaultRunDir(const std::string& config) {
  const std::time_t now = std::time(nullptr);
  std::tm parts{};
  localtime_r(&now, &parts);
  return fmt::format("runs/{}-{:04}{:02}{:02}-{:02}{:02}{:02}", std::filesystem::path(config).stem().string(),
                     parts.tm_year + 1900, parts.tm_mon + 1, parts.tm_mday, parts.tm_hour, parts.tm_min, parts.tm_sec);
}

void ShowSample(const TrainRequest& request) {
  GenerateRequest sample;
  sample.checkpoint =
      request.config.checkpoint.dir.empty() ? request.run_dir : std::filesystem::path(request.config.checkpoint.dir);
  sample.prompt = request.config.log.sample_prompt;
  sample.tokens = request.config.log.sample;
  std::fputs(sample.prompt.c_str(), stdout);
  Generate(sample, [](std::string_view piece) {
    std::fwrite(piece.data(), 1, piece.size(), stdout);
    std::fflush(stdout);
  });
  std::fputc('\n', stdout);
}

}  // namespace

void AddTrain(CLI::App& app, int& exit_code) {
  struct Options {
    std::string config, run_dir, backend = "auto", resume;
    std::vector<std::string> set;
    int ranks = 0;
    bool dry_run = false;
  };
  auto options = std::make_shared<Options>();
  CLI::App* command = app.add_subcommand("train", "trains a model over data- and tensor-parallel ranks");
  command->add_option("config", options->config, "configuration file")->required();
  command->add_option("--set", options->set, "path=value: overrides a field (repeat for more)");
  command->add_option("--ranks", options->ranks, "must agree with the degrees, or fills dp")
      ->check(CLI::PositiveNumber);
  command->add_option("--backend", options->backend, "how ranks talk: auto, thread, mpi, gloo or nccl")
      ->check(CLI::IsMember({"auto", "thread", "mpi", "gloo", "nccl"}));
  command->add_option("--run-dir", options->run_dir, "folder of the run (default: runs/NAME-TIME)");
  CLI::Option* resume =
      command->add_option("--resume", options->resume, "go on from CHECKPOINT, or from the run's newest")
          ->expected(0, 1);
  command->add_flag("--dry-run", options->dry_run,
                    "check everything and print the resolved configuration; start nothing");
  command->callback([options, resume, &exit_code] {
    TrainRequest request;
    request.config = LoadConfig(options->config);
    for (const std::string& assignment : options->set) SetField(request.config, assignment);
    request.ranks = options->ranks;
    request.resume = resume->count() > 0;
    if (request.resume && options->run_dir.empty()) FailUser("--resume: give the run's folder with --run-dir");
    if (!options->resume.empty()) request.resume_from = options->resume;
    request.run_dir = options->run_dir.empty() ? DefaultRunDir(options->config) : options->run_dir;
    request.dry_run = options->dry_run;
    request.terminal = isatty(STDERR_FILENO) != 0;
    request.launch = DetectLaunch(options->backend, ReadEnvironment());
    request.stop = CatchSignals();
    const Launch::Kind kind = request.launch.kind;
    if (!request.dry_run && (kind == Launch::Kind::kStartGloo || kind == Launch::Kind::kStartMpi)) {
      // All that can be wrong is said once, here, before a rank is started.
      const Config config = ResolveForTraining(request.config, request.ranks);
      exit_code = StartRanks(request.launch, Mesh(config.parallel).world(), OwnCommandLine(), request.stop);
      return;
    }
    if (request.dry_run) request.launch = Launch{};
    bool interrupted = false;
    try {
      interrupted = Train(request) == TrainOutcome::kInterrupted;
    } catch (const UserError&) {
      if (request.launch.rank == 0) throw;
      exit_code = 2;  // rank 0 finds the same, and says it once
      return;
    }
    exit_code = interrupted ? 130 : 0;
    const bool lead = request.launch.rank == 0;
    if (lead && !interrupted && !request.dry_run && request.config.log.sample > 0) ShowSample(request);
  });
}

}  // namespace trireme::apps
