#pragma once
// The gloo back end: processes on one or many hosts that reach each other over TCP, with c10d's ProcessGroupGloo of
// LibTorch carrying the messages (launched by torchrun, or as own processes). Collectives: see peer_world.h.

#include <chrono>
#include <functional>
#include <memory>
#include <string>

#include "comm/communicator.h"

namespace trireme {

// Where the processes of a run meet. Rank 0's process keeps it alive until all have left.
class Rendezvous {
 public:
  // TCP. `serve`: this process answers at `port`, on the socket listen_fd where that is not -1 (else it connects to
  // host:port). Throws CommError that names host:port after `timeout`.
  static std::shared_ptr<Rendezvous> Tcp(const std::string& host, int port, bool serve,
                                         std::chrono::duration<double> timeout, int listen_fd = -1);
  // Between threads of one process (tests).
  static std::shared_ptr<Rendezvous> Local();

  virtual ~Rendezvous() = default;
};

struct GlooOptions {
  int rank = 0, size = 1;
  std::string run = "0";  // keeps runs that meet at the same place apart
  std::string address;    // this host's address for the others; empty: `interface`'s, else the one that reaches the
                          // rendezvous, else loopback
  std::string interface;  // "eth0"
  std::chrono::duration<double> timeout{600};
};

// Blocks until all ranks have come (CommError otherwise). The communicator keeps its connections until it is destroyed;
// a process that leaves early is an error to those that wait for it.
std::unique_ptr<Communicator> JoinGloo(const std::shared_ptr<Rendezvous>& rendezvous, const GlooOptions& options,
                                       std::function<std::string(int)> describe = {});

}  // namespace trireme
