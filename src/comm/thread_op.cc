#include "comm/thread_op.h"

#include <algorithm>
#include <array>
#include <cstring>

namespace trireme::internal {
namespace {

constexpr int64_t kChunkElements = 64 * 1024;
constexpr int64_t kChunkBytes = 256 * 1024;
constexpr int64_t kBlock = 1024;  // summed in one go in the first-level cache

int64_t CeilDivide(int64_t a, int64_t b) { return (a + b - 1) / b; }

template <class Acc>
void Combine(Acc& a, Acc b, ReduceOp op) {
  // A NaN wins, so that it is seen whichever rank has it.
  if (op == ReduceOp::kSum) a = static_cast<Acc>(a + b);
  if (op == ReduceOp::kMax) a = b > a || b != b ? b : a;
  if (op == ReduceOp::kMin) a = b < a || b != b ? b : a;
}

// Reduces elements [begin, end) of all inputs, in rank order, into outputs[..][begin - shift, end - shift). A block is
// read from every rank before it is written to any: in place is safe.
template <class T, class Acc>
void ReduceRange(const ThreadOp& op, int64_t begin, int64_t end, int64_t shift, size_t first_out, size_t last_out) {
  const ReduceOp reduce = op.entries[0].reduce;
  std::array<Acc, kBlock> acc;
  for (int64_t at = begin; at < end; at += kBlock) {
    const int64_t n = std::min(kBlock, end - at);
    for (size_t r = 0; r < op.entries.size(); ++r) {
      const T* in = static_cast<const T*>(op.entries[r].in.const_data_ptr()) + at;
      if (r == 0) {
        for (int64_t i = 0; i < n; ++i) acc[i] = static_cast<Acc>(in[i]);
      } else if (reduce == ReduceOp::kSum) {
        for (int64_t i = 0; i < n; ++i) acc[i] = static_cast<Acc>(acc[i] + static_cast<Acc>(in[i]));
      } else {
        for (int64_t i = 0; i < n; ++i) Combine(acc[i], static_cast<Acc>(in[i]), reduce);
      }
    }
    for (size_t r = first_out; r < last_out; ++r) {
      T* out = static_cast<T*>(op.entries[r].out.data_ptr()) + at - shift;
      for (int64_t i = 0; i < n; ++i) out[i] = static_cast<T>(acc[i]);
    }
  }
}

void Reduce(const ThreadOp& op, int64_t begin, int64_t end, int64_t shift, size_t first_out, size_t last_out) {
  switch (op.entries[0].in.scalar_type()) {
    case at::kFloat:
      return ReduceRange<float, float>(op, begin, end, shift, first_out, last_out);
    case at::kDouble:
      return ReduceRange<double, double>(op, begin, end, shift, first_out, last_out);
    case at::kBFloat16:
      return ReduceRange<c10::BFloat16, float>(op, begin, end, shift, first_out, last_out);
    case at::kHalf:
      return ReduceRange<c10::Half, float>(op, begin, end, shift, first_out, last_out);
    case at::kLong:
      return ReduceRange<int64_t, int64_t>(op, begin, end, shift, first_out, last_out);
    case at::kInt:
      return ReduceRange<int32_t, int32_t>(op, begin, end, shift, first_out, last_out);
    default:
      return ReduceRange<uint8_t, uint8_t>(op, begin, end, shift, first_out, last_out);
  }
}

// Copies bytes [begin, end) of a piece; nothing where both are the same memory (an all-gather in place).
void Copy(const at::Tensor& out, int64_t out_at, const at::Tensor& in, int64_t in_at, int64_t begin, int64_t end) {
  if (begin >= end) return;
  char* to = static_cast<char*>(out.data_ptr()) + out_at + begin;
  const char* from = static_cast<const char*>(in.const_data_ptr()) + in_at + begin;
  if (to != from) std::memcpy(to, from, static_cast<size_t>(end - begin));
}

int64_t RowBytes(const at::Tensor& t) { return t.dim() > 0 && t.size(0) > 0 ? int64_t(t.nbytes()) / t.size(0) : 0; }

int64_t RowsBefore(const std::vector<int64_t>& rows, size_t r) {
  int64_t sum = 0;
  for (size_t i = 0; i < r; ++i) sum += rows[i];
  return sum;
}

// Chunks of one rank's piece in a reduce-scatter or all-gather.
int64_t PieceChunks(const ThreadOp& op) {
  const OpEntry& e = op.entries[0];
  return e.kind == OpKind::kReduceScatter ? CeilDivide(e.out.numel(), kChunkElements)
                                          : CeilDivide(int64_t(e.in.nbytes()), kChunkBytes);
}

}  // namespace

bool CanReduce(at::ScalarType type) {
  constexpr std::array kTypes = {at::kFloat, at::kDouble, at::kBFloat16, at::kHalf, at::kLong, at::kInt, at::kByte};
  return std::find(kTypes.begin(), kTypes.end(), type) != kTypes.end();
}

std::string EntryText(const OpEntry& e) {
  std::string text(e.name);
  const at::Tensor& t = e.in.defined() ? e.in : e.out;
  if (t.defined()) {
    text += fmt::format(" {}[", c10::toString(t.scalar_type()));
    for (int64_t d = 0; d < t.dim(); ++d) text += fmt::format("{}{}", d ? ", " : "", t.size(d));
    text += "]";
  }
  if (e.kind == OpKind::kAllReduce || e.kind == OpKind::kReduceScatter) {
    text += e.reduce == ReduceOp::kSum ? " sum" : e.reduce == ReduceOp::kMax ? " max" : " min";
  }
  if (e.kind == OpKind::kBroadcast) text += fmt::format(" from rank {}", e.root);
  if (!e.text.empty()) text += " " + e.text;
  return text;
}

std::string Mismatch(const ThreadOp& op) {
  const OpEntry& a = op.entries[0];
  for (const OpEntry& b : op.entries) {
    if (a.kind != b.kind || a.root != b.root || a.reduce != b.reduce || a.text != b.text) return "calls differ";
    const at::Tensor &s = a.in.defined() ? a.in : a.out, &t = b.in.defined() ? b.in : b.out;
    if (!s.defined()) continue;
    if (s.scalar_type() != t.scalar_type()) return "types differ";
    if (a.kind != OpKind::kAllToAll && s.sizes() != t.sizes()) return "shapes differ";
    if (a.kind == OpKind::kAllToAll && s.sizes().slice(1) != t.sizes().slice(1)) return "row shapes differ";
  }
  if (a.kind == OpKind::kAllToAll) {
    for (size_t from = 0; from < op.entries.size(); ++from) {
      for (size_t to = 0; to < op.entries.size(); ++to) {
        const int64_t sent = op.entries[from].in_rows[to], got = op.entries[to].out_rows[from];
        if (sent != got) {
          return fmt::format("group rank {} sends {} rows to {}, which expects {}", from, sent, to, got);
        }
      }
    }
  }
  return "";
}

int64_t CountChunks(const ThreadOp& op) {
  const OpEntry& e = op.entries[0];
  const int64_t n = static_cast<int64_t>(op.entries.size());
  switch (e.kind) {
    case OpKind::kAllReduce:
      return CeilDivide(e.in.numel(), kChunkElements);
    case OpKind::kReduceScatter:
    case OpKind::kAllGather:
      return n * PieceChunks(op);
    case OpKind::kBroadcast:
    case OpKind::kSendRecv:
      return CeilDivide(int64_t(e.in.nbytes()), kChunkBytes);
    case OpKind::kAllToAll:
      return n * n;
    case OpKind::kBarrier:
    case OpKind::kSplit:
      return 0;
  }
  return 0;
}

void RunChunk(const ThreadOp& op, int64_t chunk) {
  const OpEntry& e = op.entries[0];
  const size_t n = op.entries.size();
  switch (e.kind) {
    case OpKind::kAllReduce: {
      const int64_t begin = chunk * kChunkElements;
      return Reduce(op, begin, std::min(begin + kChunkElements, e.in.numel()), 0, 0, n);
    }
    case OpKind::kReduceScatter: {
      const int64_t each = PieceChunks(op), piece = e.out.numel(), r = chunk / each;
      const int64_t begin = (chunk % each) * kChunkElements, end = std::min(begin + kChunkElements, piece);
      return Reduce(op, r * piece + begin, r * piece + end, r * piece, size_t(r), size_t(r) + 1);
    }
    case OpKind::kAllGather: {
      const int64_t each = PieceChunks(op), piece = int64_t(e.in.nbytes()), r = chunk / each;
      const int64_t begin = (chunk % each) * kChunkBytes, end = std::min(begin + kChunkBytes, piece);
      for (const OpEntry& to : op.entries) Copy(to.out, r * piece, op.entries[size_t(r)].in, 0, begin, end);
      return;
    }
    case OpKind::kBroadcast:
    case OpKind::kSendRecv: {
      const OpEntry& from = op.entries[e.kind == OpKind::kBroadcast ? size_t(e.root) : 0];
      const int64_t begin = chunk * kChunkBytes, end = std::min(begin + kChunkBytes, int64_t(from.in.nbytes()));
      for (const OpEntry& to : op.entries) {
        if (&to != &from) Copy(to.out, 0, from.in, 0, begin, end);
      }
      return;
    }
    case OpKind::kAllToAll: {
      const size_t from = size_t(chunk) / n, to = size_t(chunk) % n;
      const OpEntry &s = op.entries[from], &t = op.entries[to];
      const int64_t row = RowBytes(s.in);
      return Copy(t.out, RowsBefore(t.out_rows, from) * row, s.in, RowsBefore(s.in_rows, to) * row, 0,
                  s.in_rows[to] * row);
    }
    case OpKind::kBarrier:
    case OpKind::kSplit:
      return;
  }
}

}  // namespace trireme::internal
