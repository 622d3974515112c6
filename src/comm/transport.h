#pragma once
// Moves bytes between the processes of a world: all that a back end of processes has to bring. Collectives, checks and
// errors on top are the same for all (peer_world.h). Internal to comm.

#include <chrono>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "base/error.h"

namespace trireme::internal {

// A peer's process or connection is gone.
class PeerGone : public Error {
 public:
  PeerGone(int peer, const std::string& why) : Error(why), peer_(peer) {}
  int peer() const { return peer_; }

 private:
  int peer_;
};

// Thread safe. Ranks are world ranks. Messages between two ranks with the same tag arrive in the order they were sent;
// a receive takes exactly the bytes that were sent. A message to oneself is not allowed.
class Transport {
 public:
  using Clock = std::chrono::steady_clock;

  // One message under way. Its memory must live until it is complete: for one that never completes (a peer is missing),
  // as long as the transport.
  class Transfer {
   public:
    virtual ~Transfer() = default;
    Transfer() = default;
    Transfer(const Transfer&) = delete;
    Transfer& operator=(const Transfer&) = delete;
  };
  using TransferPtr = std::unique_ptr<Transfer>;

  virtual ~Transport() = default;
  virtual int rank() const = 0;
  virtual int size() const = 0;
  static constexpr int kTagBits = 30;  // 0 <= tag < 2^kTagBits

  virtual TransferPtr Send(int to, int tag, const void* data, size_t bytes) = 0;
  virtual TransferPtr Recv(int from, int tag, void* data, size_t bytes) = 0;

  enum class Outcome { kComplete, kTimedOut, kAborted };
  // Blocks until all are complete, the deadline has passed, or Abort was called by any rank. Throws PeerGone.
  virtual Outcome Wait(std::span<const TransferPtr> transfers, Clock::time_point deadline) = 0;
  // Whether it is complete, after a Wait that timed out; may take some milliseconds.
  virtual bool Arrived(Transfer& transfer) = 0;

  // Tells all ranks, best effort; the first reason that a rank hears wins. Any thread.
  virtual void Abort(std::string_view reason) = 0;
  virtual std::optional<std::string> AbortReason() = 0;  // cheap while there is none
};

}  // namespace trireme::internal
