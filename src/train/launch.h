#pragma once
// How the ranks of a run come to be: as threads of this process, or as processes that a launcher (mpirun, srun,
// torchrun) or this program itself started. Everything else of the program is the same for all of them.

#include <atomic>
#include <chrono>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "comm/communicator.h"

namespace trireme {

// Environment variables by name; only apps/ reads the real ones.
using Environment = std::map<std::string, std::string>;
Environment ParseEnvironment(const char* const* block);  // "NAME=value" ..., ended by null: as in environ

struct Launch {
  enum class Kind {
    kThreads,    // one process, ranks are threads
    kMpi,        // this process is a rank; MPI knows which
    kGloo,       // this process is rank `rank` of `world`, which meet at host:port
    kStartGloo,  // no launcher: start the ranks as processes and watch over them
    kStartMpi,   // no launcher: hand over to mpirun
  };
  Kind kind = Kind::kThreads;
  std::string launcher;  // "torchrun", "mpirun", "srun", "": named in errors
  int rank = 0, world = 0, local_rank = 0;
  int local_world = 0;  // ranks on this host; 0: all
  std::string host;     // where gloo's ranks meet
  int port = 0;
  bool serve = false;     // this process answers there
  int listen_fd = -1;     // a socket that listens there already
  std::string interface;  // GLOO_SOCKET_IFNAME

  bool processes() const { return kind != Kind::kThreads; }
};

// backend: auto, thread, mpi, gloo or nccl. The first launcher whose variables are complete is believed: torchrun, Open
// MPI, MPICH, Slurm. UserError names variables that are missing or make no sense, and what would.
Launch DetectLaunch(const std::string& backend, const Environment& environment);

// Runs body(world) on every rank that lives in this process, and returns when they are done. The first error of a rank
// that lives here is thrown, with the rank in front. `ranks` must be the world that the launcher made (UserError).
// `stop` (may be null) is set by signals: under mpirun, which kills soon after, a wait is then ended with a report.
void RunRanks(const Launch& launch, int ranks, std::chrono::duration<double> timeout,
              const std::function<void(Communicator& world)>& body, const std::function<std::string(int)>& describe,
              const std::atomic<bool>* stop);

// kStartGloo: starts `ranks` processes of `argv` (argv[0] is a path), each told by variables as torchrun's would be;
// passes signals on, ends the rest when one fails, and leaves nobody behind. Returns the exit code. kStartMpi: becomes
// mpirun (returns only when that fails: UserError).
int StartRanks(const Launch& launch, int ranks, const std::vector<std::string>& argv, const std::atomic<bool>* stop);

}  // namespace trireme
