#include <arpa/inet.h>
#include <netdb.h>
#include <sys/socket.h>
#include <unistd.h>

#include <ATen/ops/from_blob.h>
#include <torch/csrc/distributed/c10d/HashStore.hpp>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <torch/csrc/distributed/c10d/ProcessGroupGloo.hpp>
#include <torch/csrc/distributed/c10d/TCPStore.hpp>

#include <atomic>
#include <condition_variable>
#include <mutex>
#include <set>
#include <thread>

#include "comm/gloo_world.h"
#include "comm/peer_world.h"

namespace trireme {
namespace {

using internal::PeerGone;
using internal::Transport;
using std::chrono::milliseconds;

struct StoreRendezvous final : Rendezvous {
  c10::intrusive_ptr<c10d::Store> store;
  std::string host;  // empty: local
};

// c10d's errors carry source lines in front and advice behind.
std::string Plain(const std::exception& error) {
  std::string text = error.what();
  text = text.substr(0, text.find('\n'));
  if (text.starts_with("[/")) text = text.substr(std::min(text.size(), text.find("] ") + 2));
  return text.substr(0, text.find(". This is typically"));
}

// The address from which this host reaches `host`: no packet is sent.
std::string AddressTowards(const std::string& host) {
  addrinfo hints{}, *found = nullptr;
  hints.ai_socktype = SOCK_DGRAM;
  if (getaddrinfo(host.c_str(), "9", &hints, &found) != 0) return "127.0.0.1";
  std::string address = "127.0.0.1";
  for (const addrinfo* at = found; at != nullptr; at = at->ai_next) {
    const int fd = socket(at->ai_family, SOCK_DGRAM, 0);
    sockaddr_storage own{};
    socklen_t size = sizeof own;
    char text[NI_MAXHOST];
    const bool reached =
        fd >= 0 && connect(fd, at->ai_addr, at->ai_addrlen) == 0 &&
        getsockname(fd, reinterpret_cast<sockaddr*>(&own), &size) == 0 &&
        getnameinfo(reinterpret_cast<sockaddr*>(&own), size, text, sizeof text, nullptr, 0, NI_NUMERICHOST) == 0;
    if (fd >= 0) close(fd);
    if (reached) {
      address = text;
      break;
    }
  }
  freeaddrinfo(found);
  return address;
}

class GlooTransfer final : public Transport::Transfer {
 public:
  GlooTransfer(c10::intrusive_ptr<c10d::Work> work, int peer) : work_(std::move(work)), peer_(peer) {}

  // Whether it completed; false: interrupted.
  bool Wait() {
    if (complete_) return true;
    try {
      complete_ = work_->wait();
    } catch (const std::exception& e) {
      throw PeerGone(peer_, Plain(e));
    }
    return complete_;
  }
  void Interrupt() { work_->abort(); }
  bool complete() const { return complete_; }

 private:
  c10::intrusive_ptr<c10d::Work> work_;
  int peer_;
  std::atomic<bool> complete_ = false;
};

// A watcher thread ends waits at their deadline, and hears of aborts from the store.
class GlooTransport final : public Transport {
 public:
  GlooTransport(c10::intrusive_ptr<c10d::Store> store, c10::intrusive_ptr<c10d::ProcessGroupGloo> group)
      : store_(std::move(store)), group_(std::move(group)), watcher_([this] { Watch(); }) {}
  ~GlooTransport() override {
    {
      const std::lock_guard lock(mutex_);
      stop_ = true;
    }
    changed_.notify_all();
    watcher_.join();
  }

  int rank() const override { return group_->getRank(); }
  int size() const override { return group_->getSize(); }

  TransferPtr Send(int to, int tag, const void* data, size_t bytes) override {
    return Post(to, data, bytes, [&](std::vector<at::Tensor>& t) { return group_->send(t, to, tag); });
  }
  TransferPtr Recv(int from, int tag, void* data, size_t bytes) override {
    return Post(from, data, bytes, [&](std::vector<at::Tensor>& t) { return group_->recv(t, from, tag); });
  }

  Outcome Wait(std::span<const TransferPtr> transfers, Clock::time_point deadline) override {
    for (const TransferPtr& transfer : transfers) {
      auto& mine = static_cast<GlooTransfer&>(*transfer);
      if (mine.complete()) continue;
      Waiting waiting{&mine, deadline};
      {
        const std::lock_guard lock(mutex_);
        if (aborted_) return Outcome::kAborted;
        waiting_.insert(&waiting);
      }
      changed_.notify_all();
      bool complete = false;
      std::exception_ptr error;
      try {
        complete = mine.Wait();
      } catch (...) {
        error = std::current_exception();
      }
      const std::lock_guard lock(mutex_);
      waiting_.erase(&waiting);
      if (error) {
        if (aborted_) return Outcome::kAborted;
        std::rethrow_exception(error);
      }
      if (!complete) return aborted_ ? Outcome::kAborted : Outcome::kTimedOut;
    }
    return Outcome::kComplete;
  }

  bool Arrived(Transfer& transfer) override {
    auto& mine = static_cast<GlooTransfer&>(transfer);
    if (mine.complete()) return true;
    try {
      // Gloo has no test: wait, and be interrupted a moment later.
      std::thread interrupt([&] {
        for (int i = 0; i < 10 && !mine.complete(); ++i) std::this_thread::sleep_for(milliseconds(2));
        if (!mine.complete()) mine.Interrupt();
      });
      const bool arrived = mine.Wait();
      interrupt.join();
      return arrived;
    } catch (const PeerGone&) {
      return false;
    }
  }

  void Abort(std::string_view reason) override {
    Hear(reason);
    try {
      const std::string text(reason);
      store_->compareSet("abort", std::vector<uint8_t>(), std::vector<uint8_t>(text.begin(), text.end()));
    } catch (const std::exception&) {
      // The process that keeps the store is gone: its connections tell the others.
    }
  }

  std::optional<std::string> AbortReason() override {
    const std::lock_guard lock(mutex_);
    return aborted_ ? std::optional(reason_) : std::nullopt;
  }

 private:
  struct Waiting {
    GlooTransfer* transfer;
    Clock::time_point deadline;
  };

  template <class Start>
  TransferPtr Post(int peer, const void* data, size_t bytes, Start start) {
    std::vector<at::Tensor> tensor{
        at::from_blob(const_cast<void*>(data), {static_cast<int64_t>(bytes)}, at::TensorOptions(at::kByte))};
    try {
      const std::lock_guard lock(post_);  // c10d numbers its operations without a lock
      return std::make_unique<GlooTransfer>(start(tensor), peer);
    } catch (const std::exception& e) {
      throw PeerGone(peer, Plain(e));
    }
  }

  void Hear(std::string_view reason) {
    {
      const std::lock_guard lock(mutex_);
      if (!aborted_) reason_ = reason;
      aborted_ = true;
    }
    changed_.notify_all();
  }

  void Watch() {
    constexpr milliseconds kTick(50);
    auto asked = Clock::now();
    std::unique_lock lock(mutex_);
    while (!stop_) {
      auto next = Clock::now() + kTick;
      for (const Waiting* waiting : waiting_) next = std::min(next, waiting->deadline);
      changed_.wait_until(lock, next);
      const auto now = Clock::now();
      if (!aborted_ && now - asked >= kTick) {
        asked = now;
        lock.unlock();
        const std::optional<std::string> heard = Ask();
        lock.lock();
        if (heard && !aborted_) {
          reason_ = *heard;
          aborted_ = true;
        }
      }
      for (const Waiting* waiting : waiting_) {
        if (aborted_ || now >= waiting->deadline) waiting->transfer->Interrupt();
      }
    }
  }

  std::optional<std::string> Ask() {
    try {
      if (!store_->check({"abort"})) return std::nullopt;
      const std::vector<uint8_t> text = store_->get("abort");
      return std::string(text.begin(), text.end());
    } catch (const std::exception&) {
      return std::nullopt;  // the process that keeps the store is gone: its connections tell
    }
  }

  c10::intrusive_ptr<c10d::Store> store_;
  c10::intrusive_ptr<c10d::ProcessGroupGloo> group_;
  std::mutex post_;
  std::mutex mutex_;  // guards the rest
  std::condition_variable changed_;
  std::set<const Waiting*> waiting_;
  bool aborted_ = false, stop_ = false;
  std::string reason_;
  std::thread watcher_;
};

}  // namespace

std::shared_ptr<Rendezvous> Rendezvous::Local() {
  auto rendezvous = std::make_shared<StoreRendezvous>();
  rendezvous->store = c10::make_intrusive<c10d::HashStore>();
  return rendezvous;
}

std::shared_ptr<Rendezvous> Rendezvous::Tcp(const std::string& host, int port, bool serve,
                                            std::chrono::duration<double> timeout, int listen_fd) {
  c10d::TCPStoreOptions options;
  options.port = static_cast<uint16_t>(port);
  options.isServer = serve;
  if (listen_fd >= 0) options.masterListenFd = listen_fd;
  options.waitWorkers = false;
  options.timeout = std::chrono::duration_cast<milliseconds>(timeout);
  auto rendezvous = std::make_shared<StoreRendezvous>();
  rendezvous->host = host;
  try {
    rendezvous->store = c10::make_intrusive<c10d::TCPStore>(host, options);
  } catch (const std::exception& e) {
    throw CommError(serve
                        ? fmt::format("cannot listen at {}:{} (MASTER_ADDR, MASTER_PORT): {}; is the port in use?",
                                      host, port, Plain(e))
                        : fmt::format("rank 0 did not come up at {}:{} (MASTER_ADDR, MASTER_PORT) within {} s; see its "
                                      "own message",
                                      host, port, timeout.count()));
  }
  return rendezvous;
}

std::unique_ptr<Communicator> JoinGloo(const std::shared_ptr<Rendezvous>& rendezvous, const GlooOptions& options,
                                       std::function<std::string(int)> describe) {
  const auto& meeting = static_cast<const StoreRendezvous&>(*rendezvous);
  const auto store = c10::make_intrusive<c10d::PrefixStore>("trireme/" + options.run, meeting.store);
  auto settings = c10d::ProcessGroupGloo::Options::create(std::chrono::duration_cast<milliseconds>(options.timeout));
  settings->threads = 1;  // only for c10d's own collectives, which are not used
  try {
    const std::string address = !options.address.empty() ? options.address
                                : meeting.host.empty()   ? "127.0.0.1"
                                                         : AddressTowards(meeting.host);
    settings->devices.push_back(options.interface.empty()
                                    ? c10d::ProcessGroupGloo::createDeviceForHostname(address)
                                    : c10d::ProcessGroupGloo::createDeviceForInterface(options.interface));
    auto group = c10::make_intrusive<c10d::ProcessGroupGloo>(store, options.rank, options.size, settings);
    return internal::MakePeerWorld(std::make_shared<GlooTransport>(store, std::move(group)), options.timeout,
                                   std::move(describe));
  } catch (const CommError&) {
    throw;
  } catch (const std::exception& e) {
    throw CommError(fmt::format("[rank {}] joining {} ranks over gloo: {}", options.rank, options.size, Plain(e)));
  }
}

}  // namespace trireme
