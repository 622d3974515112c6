#pragma once
// A world of processes over a Transport (MPI, Gloo). Collectives are built from messages so that every back end checks,
// sums and fails alike:
// - Each collective begins with one small message from every member to every other that carries its call. A member that
//   is missing or calls something else is named on every member; nothing hangs and nothing is overwritten before.
// - Small tensors ride on that message. Large ones are cut into a slice for each rank; the owner of a slice sums it in
//   rank order and sends it back: 2 (n-1)/n of the tensor on the wire, and the same bits as the thread back end gives.
// - Operations of a group run in order, by a worker thread or by the first caller that waits. Sends and receives go out
//   at once.

#include <chrono>
#include <functional>
#include <memory>

#include "comm/communicator.h"
#include "comm/transport.h"

namespace trireme::internal {

// The world group as this rank sees it. A failure that this rank finds (time-out, mismatch, lost peer) also aborts the
// world, so that whoever waits elsewhere learns the reason. `describe` names ranks in errors.
std::unique_ptr<Communicator> MakePeerWorld(std::shared_ptr<Transport> transport, std::chrono::duration<double> timeout,
                                            std::function<std::string(int)> describe);

}  // namespace trireme::internal
