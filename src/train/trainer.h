#pragma once
// From a configuration to a trained model in a run's folder: starts the ranks, loops over steps, writes what the run
// says about itself.

#include <atomic>
#include <filesystem>
#include <optional>

#include "config/config.h"
#include "train/launch.h"

namespace trireme {

struct TrainRequest {
  Config config;                  // as parsed; resolved here
  int ranks = 0;                  // 0: as many as the degrees multiply to
  std::filesystem::path run_dir;  // created
  bool resume = false;
  std::optional<std::filesystem::path> resume_from;  // a checkpoint; else the newest of the run, or a fresh start
  bool dry_run = false;                              // resolve, check, print; start nothing
  bool terminal = false;                             // standard error is a terminal: draw a progress bar
  Launch launch;                                     // not kStartGloo or kStartMpi
  const std::atomic<bool>* stop = nullptr;  // set from a signal handler: checkpoint at the next step, then leave
};

enum class TrainOutcome { kDone, kInterrupted };

// In a run of several processes, every one calls it with the same request; rank 0's run_dir and checkpoint count.
// Throws UserError before anything starts when the configuration or its files are wrong, Error when the run fails.
TrainOutcome Train(TrainRequest request);

// model.from's shape merged in, then resolved and checked.
Config ResolveForTraining(Config config, int ranks);

}  // namespace trireme
