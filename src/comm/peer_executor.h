#pragma once
// One operation of one group, as messages over a Transport: hellos, slices, sums, and what an error says. The
// algorithms are described in peer_world.h; peer_world.cc decides which thread carries an operation out, and when.
// Internal to comm: included by peer_world.cc alone.

#include <xxhash.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstring>
#include <memory>
#include <mutex>
#include <thread>

#include "comm/call.h"
#include "comm/reduce.h"
#include "comm/transport.h"

namespace trireme::internal {

using Transfers = std::vector<Transport::TransferPtr>;

constexpr int64_t kChunkBytes = 512 * 1024;
constexpr size_t kTextBytes = 448, kPayloadBytes = 2048;

// The first message of every operation.
struct Hello {
  uint64_t fingerprint = 0;  // of all that must agree
  int64_t rows = 0;          // all_to_all: rows that the sender has for the receiver
  char text[kTextBytes] = {};
  char payload[kPayloadBytes];
};

// Tags: group, kind of message, sequence number. Operations of a group are far fewer than 2^14 apart.
enum class TagClass { kHello, kToOwner, kFromOwner, kMessage };
constexpr int kSequenceBits = 14, kClassBits = 3, kGroupBits = Transport::kTagBits - kSequenceBits - kClassBits;
inline int Tag(int group, TagClass kind, bool point_to_point, uint64_t sequence) {
  const int cls = static_cast<int>(kind) * 2 + (point_to_point ? 1 : 0);
  return (((group << kClassBits) | cls) << kSequenceBits) | static_cast<int>(sequence & ((1u << kSequenceBits) - 1));
}

inline char* Bytes(const at::Tensor& t, int64_t at = 0) { return static_cast<char*>(t.data_ptr()) + at; }

struct PeerState {
  std::shared_ptr<Transport> transport;
  std::chrono::duration<double> timeout;
  std::function<std::string(int)> describe;
  std::mutex mutex;
  int next_group = 1;
  std::vector<std::shared_ptr<void>> lost;  // memory that a message which never completed may still be written to

  std::string RankText(int world_rank) const { return DescribeRank(world_rank, describe); }
  template <class T>
  void Lose(T thing) {
    const std::lock_guard lock(mutex);
    lost.push_back(std::make_shared<T>(std::move(thing)));
  }
};

struct PeerGroup {
  std::string name;
  std::vector<int> ranks;  // world ranks
  int rank = 0;
  int id = 0;
};

// One operation: carried out once, by any thread of this rank.
struct PeerOp {
  Call call;
  uint64_t sequence = 0;
  std::string text;
  bool done = false;
  std::exception_ptr error;
  // Sends and receives, under way since they were issued:
  Transfers transfers;
  std::unique_ptr<Hello> hello;
};

// Carries out operations of one group on this rank. Not thread safe: the queue lets one thread in at a time.
class PeerExecutor {
 public:
  PeerExecutor(PeerState& world, const PeerGroup& group) : world_(world), group_(group), transport_(*world.transport) {}

  void Run(PeerOp& op) {
    deadline_ = Transport::Clock::now() + std::chrono::duration_cast<Transport::Clock::duration>(world_.timeout);
    op_ = &op;
    if (const auto reason = transport_.AbortReason()) throw AbortedError(fmt::format("{}: {}", op_->text, *reason));
    Explained(op, [&] {
      if (op.call.kind == OpKind::kSendRecv) {
        PointToPoint(op);
      } else {
        Collective(op);
      }
    });
    op.call.in = op.call.out = at::Tensor();
  }

  // Sends and receives leave at once; Run waits for them.
  void Start(PeerOp& op) {
    Explained(op, [&] { StartMessage(op); });
  }

 private:
  // A lost peer, as a CommError with everything a user needs.
  template <class Body>
  void Explained(const PeerOp& op, Body body) {
    try {
      body();
    } catch (const PeerGone& gone) {
      // A rank that failed says why before it goes: its reason is the better one, if it comes.
      for (int i = 0; i < 20 && !transport_.AbortReason(); ++i) {
        std::this_thread::sleep_for(std::chrono::milliseconds(5));
      }
      if (const auto reason = transport_.AbortReason()) throw AbortedError(fmt::format("{}: {}", op.text, *reason));
      throw CommError(fmt::format("{}: lost {}: {}", op.text, world_.RankText(gone.peer()), gone.what()));
    }
  }

  void StartMessage(PeerOp& op) {
    const Call& call = op.call;
    const bool send = call.in.defined();
    const int peer = group_.ranks[size_t(call.peer)];
    if (peer == transport_.rank()) return;  // meets its other half in the communicator
    op.hello = std::make_unique<Hello>();
    const at::Tensor& t = call.tensor();
    const int hello = Tag(group_.id, TagClass::kHello, true, op.sequence),
              data = Tag(group_.id, TagClass::kMessage, true, op.sequence);
    if (send) {
      Describe(call, *op.hello);
      op.transfers.push_back(transport_.Send(peer, hello, op.hello.get(), sizeof(Hello)));
      if (t.nbytes() > 0) op.transfers.push_back(transport_.Send(peer, data, t.const_data_ptr(), t.nbytes()));
    } else {
      op.transfers.push_back(transport_.Recv(peer, hello, op.hello.get(), sizeof(Hello)));
    }
  }

  int n() const { return static_cast<int>(group_.ranks.size()); }
  int Peer(int member) const { return group_.ranks[size_t(member)]; }

  static void Describe(const Call& call, Hello& hello) {
    const std::string agreement = Agreement(call), text = CallText(call);
    hello.fingerprint = XXH3_64bits(agreement.data(), agreement.size());
    std::memcpy(hello.text, text.data(), std::min(text.size(), kTextBytes - 1));
  }

  // Ends in success or a CommError with everything a user needs.
  void Await(Transfers& transfers, const std::function<std::string()>& missing) {
    const Transport::Outcome outcome = transport_.Wait(transfers, deadline_);
    if (outcome == Transport::Outcome::kComplete) return;
    if (outcome == Transport::Outcome::kAborted) {
      throw AbortedError(fmt::format("{}: {}", op_->text, transport_.AbortReason().value_or("aborted")));
    }
    throw CommError(
        fmt::format("{}: expected all {} members within {} s (train.timeout_s), missing: {}; see what they did last, "
                    "or raise train.timeout_s if they are only slow",
                    op_->text, op_->call.kind == OpKind::kSendRecv ? 2 : n(), world_.timeout.count(), missing()));
  }

  void Mismatch(const std::string& differ, const std::vector<std::string>& texts, const std::vector<int>& members) {
    std::vector<std::pair<std::string, std::string>> sides;
    for (size_t i = 0; i < members.size(); ++i) sides.emplace_back(world_.RankText(Peer(members[i])), texts[i]);
    throw CommError(fmt::format("{}: {}", op_->text, MismatchText(differ, sides)));
  }

  // Everyone tells everyone; afterwards hellos_[m] is member m's.
  void ExchangeHellos(const Call& call, std::span<const char> payload) {
    hellos_.resize(size_t(n()));
    mine_.resize(size_t(n()));
    Transfers transfers;
    const int tag = Tag(group_.id, TagClass::kHello, false, op_->sequence);
    Hello& own = mine_[size_t(group_.rank)];
    own = Hello();
    Describe(call, own);
    if (!payload.empty()) std::memcpy(own.payload, payload.data(), payload.size());
    std::vector<int> from;
    for (int step = 1; step < n(); ++step) {
      const int member = (group_.rank + step) % n();
      transfers.push_back(transport_.Recv(Peer(member), tag, &hellos_[size_t(member)], sizeof(Hello)));
      from.push_back(member);
    }
    for (const int member : from) {
      Hello& hello = mine_[size_t(member)];
      hello = own;
      if (call.kind == OpKind::kAllToAll) hello.rows = call.in_rows[size_t(member)];
      transfers.push_back(transport_.Send(Peer(member), tag, &hello, sizeof(Hello)));
    }
    own.rows = call.kind == OpKind::kAllToAll ? call.in_rows[size_t(group_.rank)] : 0;
    hellos_[size_t(group_.rank)] = own;
    try {
      Await(transfers, [&] {
        std::string names;
        for (size_t i = 0; i < from.size(); ++i) {
          if (!transport_.Arrived(*transfers[i])) names += (names.empty() ? "" : ", ") + world_.RankText(Peer(from[i]));
        }
        return names.empty() ? "none (their messages came, the last one did not leave)" : names;
      });
    } catch (...) {
      world_.Lose(std::make_pair(std::move(hellos_), std::move(mine_)));
      world_.Lose(std::move(transfers));
      throw;
    }
    std::vector<std::string> texts;
    std::vector<int> members;
    bool same = true;
    for (int m = 0; m < n(); ++m) {
      texts.emplace_back(hellos_[size_t(m)].text);
      members.push_back(m);
      same = same && hellos_[size_t(m)].fingerprint == own.fingerprint;
    }
    if (!same) Mismatch("calls differ", texts, members);
    if (call.kind == OpKind::kAllToAll) {
      for (int m = 0; m < n(); ++m) {
        if (hellos_[size_t(m)].rows != call.out_rows[size_t(m)]) {
          Mismatch(fmt::format("group rank {} sends {} rows to {}, which expects {}", m, hellos_[size_t(m)].rows,
                               group_.rank, call.out_rows[size_t(m)]),
                   texts, members);
        }
      }
    }
  }

  void Collective(PeerOp& op) {
    const Call& call = op.call;
    const at::Tensor& in = call.in;
    const size_t bytes = in.defined() ? in.nbytes() : 0;
    const bool small = bytes <= kPayloadBytes && call.kind != OpKind::kAllToAll;
    if (n() == 1) {
      ExchangeNothing(call);
      return;
    }
    std::span<const char> payload;
    if (small && bytes > 0 && (call.kind != OpKind::kBroadcast || call.root == group_.rank)) {
      payload = {static_cast<const char*>(in.const_data_ptr()), bytes};
    }
    ExchangeHellos(call, payload);
    if (bytes == 0 && call.kind != OpKind::kAllToAll) return;
    if (small) {
      UsePayloads(call, bytes);
    } else {
      Transfer(call);
    }
  }

  void ExchangeNothing(const Call& call) {
    if (call.in.defined() && call.out.defined() && call.in.nbytes() > 0 && Bytes(call.in) != Bytes(call.out)) {
      std::memcpy(Bytes(call.out), Bytes(call.in), call.in.nbytes());
    }
  }

  void UsePayloads(const Call& call, size_t bytes) {
    const at::ScalarType type = call.in.scalar_type();
    const auto ins = [&](int64_t at) {
      std::vector<const void*> from;
      for (const Hello& hello : hellos_) from.push_back(hello.payload + at);
      return from;
    };
    void* out = call.out.data_ptr();
    switch (call.kind) {
      case OpKind::kAllReduce:
        return Reduce(type, call.reduce, ins(0), {&out, 1}, call.in.numel());
      case OpKind::kReduceScatter:
        return Reduce(type, call.reduce, ins(group_.rank * static_cast<int64_t>(call.out.nbytes())), {&out, 1},
                      call.out.numel());
      case OpKind::kAllGather:
        for (int m = 0; m < n(); ++m)
          std::memcpy(Bytes(call.out, m * int64_t(bytes)), hellos_[size_t(m)].payload, bytes);
        return;
      case OpKind::kBroadcast:
        if (call.root != group_.rank) std::memcpy(out, hellos_[size_t(call.root)].payload, bytes);
        return;
      default:
        return;
    }
  }

  void Transfer(const Call& call) {
    switch (call.kind) {
      case OpKind::kAllReduce:
        return Slices(call, call.in, call.in, (call.in.numel() + n() - 1) / n(), true);
      case OpKind::kReduceScatter:
        return Slices(call, call.in, call.out, call.out.numel(), false);
      case OpKind::kAllGather:
        return Pieces(
            call, [&](int) { return std::pair<int64_t, int64_t>(0, call.in.nbytes()); },
            [&](int m) { return std::pair<int64_t, int64_t>(m * int64_t(call.in.nbytes()), call.in.nbytes()); });
      case OpKind::kBroadcast: {
        const bool root = call.root == group_.rank;
        const auto all = std::pair<int64_t, int64_t>(0, call.in.nbytes()), nothing = std::pair<int64_t, int64_t>(0, 0);
        return Pieces(
            call, [&](int) { return root ? all : nothing; },
            [&](int m) { return !root && m == call.root ? all : nothing; });
      }
      case OpKind::kAllToAll: {
        const auto rows_of = [](const at::Tensor& t, const std::vector<int64_t>& rows, int member) {
          const int64_t row = t.size(0) > 0 ? int64_t(t.nbytes()) / t.size(0) : 0;
          int64_t before = 0;
          for (int i = 0; i < member; ++i) before += rows[size_t(i)];
          return std::pair<int64_t, int64_t>(before * row, rows[size_t(member)] * row);
        };
        return Pieces(
            call, [&](int m) { return rows_of(call.in, call.in_rows, m); },
            [&](int m) { return rows_of(call.out, call.out_rows, m); });
      }
      default:
        return;
    }
  }

  // give(m), take(m): byte offset and size of what goes to and comes from member m.
  template <class Give, class Take>
  void Pieces(const Call& call, Give give, Take take) {
    const int tag = Tag(group_.id, TagClass::kMessage, false, op_->sequence);
    Transfers transfers;
    for (int step = 1; step < n(); ++step) {
      const int m = (group_.rank + step) % n();
      const auto [at, bytes] = take(m);
      if (bytes > 0) transfers.push_back(transport_.Recv(Peer(m), tag, Bytes(call.out, at), size_t(bytes)));
    }
    for (int step = 1; step < n(); ++step) {
      const int m = (group_.rank + step) % n();
      const auto [at, bytes] = give(m);
      if (bytes > 0) transfers.push_back(transport_.Send(Peer(m), tag, Bytes(call.in, at), size_t(bytes)));
    }
    if (call.kind != OpKind::kBroadcast) {
      const auto [from, bytes] = give(group_.rank);
      const auto [to, same] = take(group_.rank);
      if (bytes > 0 && Bytes(call.in, from) != Bytes(call.out, to)) {
        std::memcpy(Bytes(call.out, to), Bytes(call.in, from), size_t(bytes));
      }
    }
    AwaitData(transfers, call);
  }

  // Member m owns elements [m slice, (m+1) slice) of `in`. Every owner sums its slice chunk by chunk; `back`: and sends
  // it to all (an all-reduce in place), else it goes to `out`. Two chunks are on their way while one is summed.
  void Slices(const Call& call, const at::Tensor& in, const at::Tensor& out, int64_t slice, bool back) {
    const auto width = static_cast<int64_t>(in.element_size());
    const int64_t chunk = std::max<int64_t>(1, kChunkBytes / width), chunks = (slice + chunk - 1) / chunk;
    const auto range = [&](int m, int64_t c) {  // elements of chunk c of member m's slice
      const int64_t end_of_slice = std::min((m + 1) * slice, in.numel()),
                    begin = std::min(m * slice + c * chunk, end_of_slice);
      return std::pair<int64_t, int64_t>(begin, std::min(begin + chunk, end_of_slice));
    };
    scratch_.resize(size_t(2 * n() * chunk * width));
    const int there = Tag(group_.id, TagClass::kToOwner, false, op_->sequence),
              home = Tag(group_.id, TagClass::kFromOwner, false, op_->sequence);
    const auto scratch = [&](int m, int64_t c) { return scratch_.data() + ((c % 2) * n() + m) * chunk * width; };
    std::array<Transfers, 2> inbound;
    Transfers rest;  // sends, and chunks that come home
    const auto post = [&](int64_t c) {
      const auto [begin, end] = range(group_.rank, c);
      for (int step = 1; step < n(); ++step) {
        const int m = (group_.rank + step) % n();
        if (end > begin) {
          inbound[size_t(c % 2)].push_back(
              transport_.Recv(Peer(m), there, scratch(m, c), size_t((end - begin) * width)));
        }
        const auto [b, e] = range(m, c);
        if (e > b) rest.push_back(transport_.Send(Peer(m), there, Bytes(in, b * width), size_t((e - b) * width)));
        if (back && e > b)
          rest.push_back(transport_.Recv(Peer(m), home, Bytes(in, b * width), size_t((e - b) * width)));
      }
    };
    post(0);
    for (int64_t c = 0; c < chunks; ++c) {
      if (c + 1 < chunks) post(c + 1);
      AwaitData(inbound[size_t(c % 2)], call);
      inbound[size_t(c % 2)].clear();
      const auto [begin, end] = range(group_.rank, c);
      if (end <= begin) continue;
      std::vector<const void*> ins;
      for (int m = 0; m < n(); ++m) {
        ins.push_back(m == group_.rank ? Bytes(in, begin * width) : static_cast<const char*>(scratch(m, c)));
      }
      void* to = back ? Bytes(in, begin * width) : Bytes(out, (begin - group_.rank * slice) * width);
      Reduce(in.scalar_type(), call.reduce, ins, {&to, 1}, end - begin);
      if (!back) continue;
      for (int step = 1; step < n(); ++step) {
        const int m = (group_.rank + step) % n();
        rest.push_back(transport_.Send(Peer(m), home, to, size_t((end - begin) * width)));
      }
    }
    AwaitData(rest, call);
  }

  // All members came to the operation: who is slow now is not known by name.
  void AwaitData(Transfers& transfers, const Call& call) {
    try {
      Await(transfers, [] { return std::string("data of a member that had begun"); });
    } catch (...) {
      world_.Lose(std::make_tuple(call.in, call.out, std::move(scratch_)));
      world_.Lose(std::move(transfers));
      throw;
    }
  }

  void PointToPoint(PeerOp& op) {
    const Call& call = op.call;
    const int peer = Peer(call.peer);
    if (peer == transport_.rank()) return;
    const auto missing = [&] { return world_.RankText(peer); };
    try {
      if (call.in.defined()) {
        Await(op.transfers, missing);
        return;
      }
      Await(op.transfers, missing);
      Hello expected;
      Describe(call, expected);
      if (op.hello->fingerprint != expected.fingerprint) {
        Mismatch("calls differ", {op.hello->text, expected.text}, {call.peer, group_.rank});
      }
      if (call.out.nbytes() == 0) return;
      op.transfers.push_back(transport_.Recv(peer, Tag(group_.id, TagClass::kMessage, true, op.sequence),
                                             call.out.data_ptr(), call.out.nbytes()));
      Await(op.transfers, missing);
    } catch (...) {
      world_.Lose(std::make_tuple(call.in, call.out, std::move(op.hello)));
      world_.Lose(std::move(op.transfers));
      throw;
    }
  }

  PeerState& world_;
  const PeerGroup& group_;
  Transport& transport_;
  PeerOp* op_ = nullptr;
  Transport::Clock::time_point deadline_;
  std::vector<Hello> hellos_, mine_;
  std::vector<char> scratch_;
};

}  // namespace trireme::internal
