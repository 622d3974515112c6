#include "train/launch.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <c10/util/Exception.h>

#include <charconv>
#include <condition_variable>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <optional>
#include <thread>

#include "comm/gloo_world.h"
#include "comm/mpi_world.h"
#include "comm/thread_world.h"

namespace trireme {
namespace {

using std::chrono::milliseconds;
using std::chrono::steady_clock;

class Variables {
 public:
  explicit Variables(const Environment& environment) : environment_(environment) {}
  bool Has(const std::string& name) const { return environment_.contains(name); }
  std::string Text(const std::string& name, const std::string& otherwise = "") const {
    const auto found = environment_.find(name);
    return found == environment_.end() ? otherwise : found->second;
  }
  int Number(const std::string& name, int otherwise) const {
    if (!Has(name)) return otherwise;
    const std::string text = Text(name);
    int value = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    if (error != std::errc() || end != text.data() + text.size() || value < 0) {
      FailUser("environment variable {}: '{}' is not a number of 0 or more", name, text);
    }
    return value;
  }

 private:
  const Environment& environment_;
};

void CheckRank(const Launch& launch, const char* rank, const char* world) {
  if (launch.rank >= launch.world) {
    FailUser("environment variable {}: {} is not below {} = {}", rank, launch.rank, world, launch.world);
  }
}

Launch Gloo(Launch launch, const Variables& v) {
  launch.kind = Launch::Kind::kGloo;
  launch.host = v.Text("MASTER_ADDR", "127.0.0.1");
  launch.port = v.Number("MASTER_PORT", 29500);
  launch.serve = launch.rank == 0 && v.Text("TORCHELASTIC_USE_AGENT_STORE") != "True";
  launch.listen_fd = launch.rank == 0 ? v.Number("TRIREME_LISTEN_FD", -1) : -1;
  launch.interface = v.Text("GLOO_SOCKET_IFNAME");
  return launch;
}

}  // namespace

Environment ParseEnvironment(const char* const* block) {
  Environment environment;
  for (; *block != nullptr; ++block) {
    const std::string_view text(*block);
    const size_t equals = text.find('=');
    if (equals != std::string_view::npos) environment.emplace(text.substr(0, equals), text.substr(equals + 1));
  }
  return environment;
}

Launch DetectLaunch(const std::string& backend, const Environment& environment) {
  const Variables v(environment);
  Launch launch;
  if (backend == "nccl")
    FailUser("--backend nccl: needs device: cuda, which this build does not have; use gloo or mpi");
  if (backend == "thread") return launch;
  const bool torchrun = v.Has("RANK") && v.Has("WORLD_SIZE");
  const bool open_mpi = v.Has("OMPI_COMM_WORLD_RANK") && v.Has("OMPI_COMM_WORLD_SIZE"),
             mpich = v.Has("PMI_RANK") && v.Has("PMI_SIZE"), slurm = v.Has("SLURM_PROCID") && v.Has("SLURM_NTASKS");
  const bool by_mpi = open_mpi || mpich;
  if (torchrun && backend != "mpi" && !(by_mpi && backend == "auto")) {
    launch.launcher = "torchrun";
    launch.rank = v.Number("RANK", 0);
    launch.world = v.Number("WORLD_SIZE", 1);
    launch.local_rank = v.Number("LOCAL_RANK", 0);
    launch.local_world = v.Number("LOCAL_WORLD_SIZE", 0);
    CheckRank(launch, "RANK", "WORLD_SIZE");
    return Gloo(launch, v);
  }
  if (by_mpi || slurm) {
    const char *rank = open_mpi ? "OMPI_COMM_WORLD_RANK"
                       : mpich  ? "PMI_RANK"
                                : "SLURM_PROCID",
               *world = open_mpi ? "OMPI_COMM_WORLD_SIZE"
                        : mpich  ? "PMI_SIZE"
                                 : "SLURM_NTASKS",
               *local = open_mpi ? "OMPI_COMM_WORLD_LOCAL_RANK"
                        : mpich  ? "MPI_LOCALRANKID"
                                 : "SLURM_LOCALID";
    launch.launcher = by_mpi ? "mpirun" : "srun";
    launch.rank = v.Number(rank, 0);
    launch.world = v.Number(world, 1);
    launch.local_rank = v.Number(local, 0);
    launch.local_world = v.Number("OMPI_COMM_WORLD_LOCAL_SIZE", 0);
    CheckRank(launch, rank, world);
    // A job step of one task is the usual way to run threads inside an allocation.
    if (launch.launcher == "srun" && launch.world == 1 && backend == "auto") return Launch{};
    if (backend == "gloo") {
      if (!v.Has("MASTER_ADDR") && launch.world > 1) {
        FailUser("--backend gloo under {}: MASTER_ADDR (the host of rank 0) is not set; set it, or use --backend mpi",
                 launch.launcher);
      }
      return Gloo(launch, v);
    }
    // MPI tells rank and size itself; variables of another launcher that say otherwise are a trap.
    for (const auto& [name, told] : {std::pair("RANK", launch.rank), std::pair("WORLD_SIZE", launch.world)}) {
      if (v.Has(name) && v.Number(name, 0) != told) {
        FailUser("environment variable {}: {} contradicts {}, which says {}; unset it", name, v.Text(name),
                 launch.launcher, told);
      }
    }
    launch.kind = Launch::Kind::kMpi;
    return launch;
  }
  if (backend == "gloo") launch.kind = Launch::Kind::kStartGloo;
  if (backend == "mpi") launch.kind = Launch::Kind::kStartMpi;
  return launch;
}

namespace {

// After a signal under mpirun: a rank that still waits a moment later will be killed before its peer comes.
class EndWaits {
 public:
  EndWaits(Communicator& world, const std::atomic<bool>* stop) {
    if (stop == nullptr) return;
    thread_ = std::thread([this, &world, stop] {
      std::unique_lock lock(mutex_);
      const auto over = [&] { return over_; };
      while (!stop->load()) {
        if (changed_.wait_for(lock, milliseconds(20), over)) return;
      }
      if (changed_.wait_for(lock, milliseconds(200), over)) return;
      world.Abort("told to end by a signal while waiting");
    });
  }
  ~EndWaits() {
    {
      const std::lock_guard lock(mutex_);
      over_ = true;
    }
    changed_.notify_all();
    if (thread_.joinable()) thread_.join();
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  bool over_ = false;
  std::thread thread_;
};

// A message that names the rank already is left alone.
[[noreturn]] void RethrowWithRank(int rank, const std::function<std::string(int)>& describe) {
  try {
    throw;
  } catch (const UserError&) {
    throw;
  } catch (const c10::Error& e) {  // what() would carry a stack of addresses
    throw Error(fmt::format("[{}] {}", DescribeRank(rank, describe), e.what_without_backtrace()));
  } catch (const std::exception& e) {
    const std::string what = e.what();
    if (what.starts_with("[rank ")) throw;
    throw Error(fmt::format("[{}] {}", DescribeRank(rank, describe), what));
  }
}

void CheckWorld(const Launch& launch, int world, int ranks) {
  if (world != ranks) {
    FailUser(
        "{} started {} ranks, but the parallel degrees multiply to {}; start {} or change a degree (parallel.dp: 0 "
        "takes what is left)",
        launch.launcher.empty() ? "the launcher" : launch.launcher, world, ranks, ranks);
  }
}

void RunAsRank(const std::function<std::unique_ptr<Communicator>()>& join, int rank,
               const std::function<void(Communicator& world)>& body, const std::function<std::string(int)>& describe,
               const std::atomic<bool>* end_waits) {
  std::unique_ptr<Communicator> world;
  try {
    world = join();
    const EndWaits watch(*world, end_waits);
    body(*world);
    world->Barrier()->Wait();  // nobody leaves while others may still need its connections
  } catch (const std::exception& e) {
    if (world) world->Abort(fmt::format("rank {} failed: {}", rank, e.what()));
    RethrowWithRank(rank, describe);
  }
}

}  // namespace

void RunRanks(const Launch& launch, int ranks, std::chrono::duration<double> timeout,
              const std::function<void(Communicator& world)>& body, const std::function<std::string(int)>& describe,
              const std::atomic<bool>* stop) {
  if (launch.kind == Launch::Kind::kThreads) {
    return RunThreadRanks(
        ranks, timeout,
        [&](Communicator& world) {
          try {
            body(world);
          } catch (...) {
            RethrowWithRank(world.rank(), describe);
          }
        },
        describe);
  }
  if (launch.kind == Launch::Kind::kMpi) {
    MpiWorld mpi;
    if (mpi.size() != launch.world || mpi.rank() != launch.rank) {
      mpi.Fail();
      FailUser(
          "{} says rank {} of {}, but MPI says rank {} of {}: the program is built with another MPI than the "
          "launcher's",
          launch.launcher, launch.rank, launch.world, mpi.rank(), mpi.size());
    }
    try {
      CheckWorld(launch, mpi.size(), ranks);
      RunAsRank([&] { return mpi.Join(ranks, timeout, describe); }, launch.rank, body, describe,
                launch.launcher == "mpirun" ? stop : nullptr);
    } catch (...) {
      mpi.Fail();
      // mpirun kills all others as soon as one has left: they need a moment to say what they saw.
      std::this_thread::sleep_for(milliseconds(300));
      throw;
    }
    return;
  }
  CheckWorld(launch, launch.world, ranks);
  RunAsRank(
      [&] {
        const auto rendezvous = Rendezvous::Tcp(launch.host, launch.port, launch.serve,
                                                std::min(timeout, std::chrono::duration<double>(60)), launch.listen_fd);
        return JoinGloo(rendezvous,
                        {.rank = launch.rank, .size = ranks, .interface = launch.interface, .timeout = timeout},
                        describe);
      },
      launch.rank, body, describe, nullptr);
}

namespace {

// A socket that listens on a free port of loopback: rank 0 inherits it, so that no other job can take the port between.
std::pair<int, int> ListenOnLoopback() {
  const int fd = socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof address;
  if (fd < 0 || bind(fd, reinterpret_cast<sockaddr*>(&address), size) != 0 || listen(fd, 128) != 0 ||
      getsockname(fd, reinterpret_cast<sockaddr*>(&address), &size) != 0) {
    Fail("cannot listen on loopback: {}", std::strerror(errno));
  }
  return {fd, ntohs(address.sin_port)};
}

pid_t StartRank(int rank, int ranks, int fd, int port, const std::vector<std::string>& argv) {
  const pid_t parent = getpid(), child = fork();
  if (child != 0) return child;
  prctl(PR_SET_PDEATHSIG, SIGTERM);  // nobody is left when the parent is killed
  if (getppid() != parent) _exit(1);
  setpgid(0, 0);  // the terminal's Ctrl-C reaches the parent, which passes it on once
  const auto set = [](const char* name, const std::string& value) { setenv(name, value.c_str(), 1); };
  set("RANK", std::to_string(rank));
  set("WORLD_SIZE", std::to_string(ranks));
  set("LOCAL_RANK", std::to_string(rank));
  set("LOCAL_WORLD_SIZE", std::to_string(ranks));
  set("MASTER_ADDR", "127.0.0.1");
  set("MASTER_PORT", std::to_string(port));
  if (rank == 0) set("TRIREME_LISTEN_FD", std::to_string(fd));
  if (rank != 0) close(fd);
  std::vector<char*> words;
  for (const std::string& word : argv) words.push_back(const_cast<char*>(word.c_str()));
  words.push_back(nullptr);
  execv(words[0], words.data());
  _exit(127);
}

}  // namespace

int StartRanks(const Launch& launch, int ranks, const std::vector<std::string>& argv, const std::atomic<bool>* stop) {
  if (launch.kind == Launch::Kind::kStartMpi) {
    std::vector<std::string> all{"mpirun", "--bind-to", "none", "--oversubscribe", "-np", std::to_string(ranks)};
    if (geteuid() == 0) all.insert(all.begin() + 1, "--allow-run-as-root");
    all.insert(all.end(), argv.begin(), argv.end());
    std::vector<char*> words;
    for (const std::string& word : all) words.push_back(const_cast<char*>(word.c_str()));
    words.push_back(nullptr);
    execvp(words[0], words.data());
    FailUser("--backend mpi: cannot start mpirun: {}; install openmpi-bin, or use --backend gloo",
             std::strerror(errno));
  }
  const auto [fd, port] = ListenOnLoopback();
  std::map<pid_t, int> alive;
  for (int rank = 0; rank < ranks; ++rank) alive[StartRank(rank, ranks, fd, port, argv)] = rank;
  close(fd);
  const auto signal_all = [&](int signal) {
    for (const auto& [pid, rank] : alive) kill(pid, signal);
  };
  int worst = 0, interrupted = 0;
  bool passed_on = false;
  std::optional<steady_clock::time_point> failed_at;
  constexpr milliseconds kGrace(2000), kLastGrace(5000);
  int ended = 0;  // 1: told to end, 2: killed
  while (!alive.empty()) {
    int status = 0;
    const pid_t pid = waitpid(-1, &status, WNOHANG);
    if (pid > 0 && alive.contains(pid)) {
      const int rank = alive[pid];
      alive.erase(pid);
      const int code = WIFEXITED(status) ? WEXITSTATUS(status) : 1;
      if (WIFSIGNALED(status)) {
        std::fprintf(stderr, "error: rank %d was ended by signal %d (%s)\n", rank, WTERMSIG(status),
                     strsignal(WTERMSIG(status)));
      }
      if (code == 130) ++interrupted;
      if (code != 0 && code != 130) {
        worst = worst == 0 ? code : worst;
        if (!failed_at) failed_at = steady_clock::now();
      }
      continue;
    }
    if (stop != nullptr && stop->load() && !passed_on) {
      passed_on = true;
      signal_all(SIGTERM);
    }
    // The others hear of a failure by themselves, and say where they were; who does not is ended.
    if (failed_at && ended == 0 && steady_clock::now() - *failed_at > kGrace) ended = 1, signal_all(SIGTERM);
    if (failed_at && ended == 1 && steady_clock::now() - *failed_at > kLastGrace) ended = 2, signal_all(SIGKILL);
    std::this_thread::sleep_for(milliseconds(10));
  }
  return worst != 0 ? worst : interrupted > 0 ? 130 : 0;
}

}  // namespace trireme
