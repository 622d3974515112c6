#pragma once
// The mpi back end: one process a rank, started by mpirun or srun; messages over MPI, collectives as in peer_world.h.
// Compiled when CMake finds MPI (MPI_FOUND); else MpiWorld's constructor throws UserError.

#include <chrono>
#include <functional>
#include <memory>

#include "comm/communicator.h"

namespace trireme {

// The MPI library of this process: at most one, made before any Communicator and destroyed after all of them.
class MpiWorld {
 public:
  MpiWorld();  // MPI_Init_thread with MPI_THREAD_MULTIPLE
  // Finalises MPI, which waits for all processes. After Fail it leaves MPI alone: with a peer missing that would hang.
  ~MpiWorld();
  MpiWorld(const MpiWorld&) = delete;
  MpiWorld& operator=(const MpiWorld&) = delete;

  int rank() const;
  int size() const;
  void Fail() { failed_ = true; }

  // The world of the first `ranks` processes. Collective over all processes; null on the others.
  std::unique_ptr<Communicator> Join(int ranks, std::chrono::duration<double> timeout,
                                     std::function<std::string(int)> describe = {});

 private:
  bool failed_ = false;
};

}  // namespace trireme
