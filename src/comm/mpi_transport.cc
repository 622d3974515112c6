#include "comm/mpi_world.h"

#ifdef TRIREME_MPI
#include <mpi.h>

#include <array>
#include <climits>
#include <cstring>
#include <mutex>
#include <thread>
#include <vector>

#include "comm/peer_world.h"

namespace trireme {
namespace {

using internal::PeerGone;
using internal::Transport;

void Check(int code, const char* what) {
  if (code == MPI_SUCCESS) return;
  char text[MPI_MAX_ERROR_STRING] = {};
  int length = 0;
  MPI_Error_string(code, text, &length);
  throw CommError(fmt::format("{}: {}", what, text));
}

class MpiTransfer final : public Transport::Transfer {
 public:
  ~MpiTransfer() override {
    if (request != MPI_REQUEST_NULL) MPI_Request_free(&request);  // never completed
  }
  MPI_Request request = MPI_REQUEST_NULL;
};

// Waits poll: MPI moves data only while somebody calls it. They spin for a moment, then yield, then sleep, so that
// ranks that share a core leave it to those that compute.
class MpiTransport final : public Transport {
 public:
  // Owns both communicators: one for data, one for aborts.
  MpiTransport(MPI_Comm data, MPI_Comm aborts) : data_(data), aborts_(aborts) {
    MPI_Comm_rank(data_, &rank_);
    MPI_Comm_size(data_, &size_);
    MPI_Comm_set_errhandler(data_, MPI_ERRORS_RETURN);
    MPI_Comm_set_errhandler(aborts_, MPI_ERRORS_RETURN);
    PostAbortReceive();
  }
  ~MpiTransport() override {
    if (hearing_ != MPI_REQUEST_NULL) {
      MPI_Cancel(&hearing_);
      MPI_Wait(&hearing_, MPI_STATUS_IGNORE);
    }
    // Freeing a communicator is collective; after a failure the others may be gone.
    if (aborted_) return;
    MPI_Comm_free(&data_);
    MPI_Comm_free(&aborts_);
  }

  int rank() const override { return rank_; }
  int size() const override { return size_; }

  TransferPtr Send(int to, int tag, const void* data, size_t bytes) override {
    auto transfer = std::make_unique<MpiTransfer>();
    Check(MPI_Isend(data, Count(bytes), MPI_BYTE, to, tag, data_, &transfer->request), "MPI_Isend");
    return transfer;
  }
  TransferPtr Recv(int from, int tag, void* data, size_t bytes) override {
    auto transfer = std::make_unique<MpiTransfer>();
    Check(MPI_Irecv(data, Count(bytes), MPI_BYTE, from, tag, data_, &transfer->request), "MPI_Irecv");
    return transfer;
  }

  Outcome Wait(std::span<const TransferPtr> transfers, Clock::time_point deadline) override {
    std::vector<MPI_Request> requests;
    requests.reserve(transfers.size());
    for (const TransferPtr& transfer : transfers) requests.push_back(static_cast<MpiTransfer&>(*transfer).request);
    int complete = 0;
    const auto begin = Clock::now();
    for (int64_t polls = 1;; ++polls) {
      const int code = MPI_Testall(static_cast<int>(requests.size()), requests.data(), &complete, MPI_STATUSES_IGNORE);
      for (size_t i = 0; i < transfers.size(); ++i) static_cast<MpiTransfer&>(*transfers[i]).request = requests[i];
      Check(code, "MPI_Testall");
      if (complete) return Outcome::kComplete;
      if (polls < kSpins) continue;
      if (HearAbort()) return Outcome::kAborted;
      const auto now = Clock::now();
      if (now >= deadline) return Outcome::kTimedOut;
      if (now - begin < kYield) {
        std::this_thread::yield();
      } else {
        std::this_thread::sleep_for(kSleep);
      }
    }
  }

  bool Arrived(Transfer& transfer) override {
    int complete = 0;
    MPI_Test(&static_cast<MpiTransfer&>(transfer).request, &complete, MPI_STATUS_IGNORE);
    return complete != 0;
  }

  void Abort(std::string_view reason) override {
    const std::lock_guard lock(mutex_);
    if (aborted_) return;
    aborted_ = true;
    reason_ = reason;
    farewell_.assign(reason.substr(0, kReasonBytes - 1));
    for (int r = 0; r < size_; ++r) {
      MPI_Request request;
      if (r == rank_) continue;
      if (MPI_Isend(farewell_.data(), static_cast<int>(farewell_.size()), MPI_BYTE, r, 0, aborts_, &request) ==
          MPI_SUCCESS) {
        MPI_Request_free(&request);  // small: it left already
      }
    }
  }

  std::optional<std::string> AbortReason() override {
    HearAbort();
    const std::lock_guard lock(mutex_);
    return aborted_ ? std::optional(reason_) : std::nullopt;
  }

 private:
  static constexpr int kSpins = 200;
  static constexpr std::chrono::microseconds kYield{500}, kSleep{50};
  static constexpr size_t kReasonBytes = 2048;

  static int Count(size_t bytes) {
    TRIREME_CHECK(bytes <= INT_MAX, "one MPI message of {} bytes", bytes);
    return static_cast<int>(bytes);
  }

  void PostAbortReceive() {
    MPI_Irecv(heard_.data(), static_cast<int>(heard_.size()), MPI_BYTE, MPI_ANY_SOURCE, 0, aborts_, &hearing_);
  }

  bool HearAbort() {
    const std::lock_guard lock(mutex_);
    if (aborted_) return true;
    int complete = 0;
    MPI_Status status;
    MPI_Test(&hearing_, &complete, &status);
    if (!complete) return false;
    int bytes = 0;
    MPI_Get_count(&status, MPI_BYTE, &bytes);
    aborted_ = true;
    reason_.assign(heard_.data(), static_cast<size_t>(bytes));
    return true;
  }

  MPI_Comm data_, aborts_;
  int rank_ = 0, size_ = 1;
  std::mutex mutex_;  // guards the rest
  MPI_Request hearing_ = MPI_REQUEST_NULL;
  std::array<char, kReasonBytes> heard_{};
  bool aborted_ = false;
  std::string reason_, farewell_;
};

}  // namespace

MpiWorld::MpiWorld() {
  int granted = MPI_THREAD_SINGLE;
  MPI_Init_thread(nullptr, nullptr, MPI_THREAD_MULTIPLE, &granted);
  if (granted < MPI_THREAD_MULTIPLE)
    FailUser("--backend mpi: this MPI grants no MPI_THREAD_MULTIPLE; use another build");
  MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
}

MpiWorld::~MpiWorld() {
  if (!failed_) MPI_Finalize();
}

int MpiWorld::rank() const {
  int rank = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  return rank;
}

int MpiWorld::size() const {
  int size = 1;
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  return size;
}

std::unique_ptr<Communicator> MpiWorld::Join(int ranks, std::chrono::duration<double> timeout,
                                             std::function<std::string(int)> describe) {
  MPI_Comm data = MPI_COMM_NULL, aborts = MPI_COMM_NULL;
  const int color = rank() < ranks ? 0 : MPI_UNDEFINED;
  Check(MPI_Comm_split(MPI_COMM_WORLD, color, rank(), &data), "MPI_Comm_split");
  if (data == MPI_COMM_NULL) return nullptr;
  Check(MPI_Comm_dup(data, &aborts), "MPI_Comm_dup");
  return internal::MakePeerWorld(std::make_shared<MpiTransport>(data, aborts), timeout, std::move(describe));
}

}  // namespace trireme

#else

namespace trireme {

MpiWorld::MpiWorld() { FailUser("--backend mpi: this build found no MPI; install libopenmpi-dev and build again"); }
MpiWorld::~MpiWorld() = default;
int MpiWorld::rank() const { return 0; }
int MpiWorld::size() const { return 1; }
std::unique_ptr<Communicator> MpiWorld::Join(int, std::chrono::duration<double>, std::function<std::string(int)>) {
  return nullptr;
}

}  // namespace trireme

#endif
