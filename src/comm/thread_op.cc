#include "comm/thread_op.h"

#include <algorithm>
#include <cstring>

#include "comm/reduce.h"

namespace trireme::internal {
namespace {

constexpr int64_t kChunkElements = 64 * 1024;
constexpr int64_t kChunkBytes = 256 * 1024;

int64_t CeilDivide(int64_t a, int64_t b) { return (a + b - 1) / b; }

// Elements [begin, end) of every member's input, into elements [begin - shift, end - shift) of some members' outputs.
void ReduceChunk(const ThreadOp& op, int64_t begin, int64_t end, int64_t shift, size_t first_out, size_t last_out) {
  const at::ScalarType type = op.entries[0].in.scalar_type();
  const auto width = static_cast<int64_t>(c10::elementSize(type));
  std::vector<const void*> ins;
  std::vector<void*> outs;
  for (const OpEntry& e : op.entries) ins.push_back(static_cast<const char*>(e.in.const_data_ptr()) + begin * width);
  for (size_t r = first_out; r < last_out; ++r) {
    outs.push_back(static_cast<char*>(op.entries[r].out.data_ptr()) + (begin - shift) * width);
  }
  Reduce(type, op.entries[0].reduce, ins, outs, end - begin);
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

std::string Mismatch(const ThreadOp& op) {
  const OpEntry& a = op.entries[0];
  for (const OpEntry& b : op.entries) {
    if (std::string differ = CallsDiffer(a, b); !differ.empty()) return differ;
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
      return ReduceChunk(op, begin, std::min(begin + kChunkElements, e.in.numel()), 0, 0, n);
    }
    case OpKind::kReduceScatter: {
      const int64_t each = PieceChunks(op), piece = e.out.numel(), r = chunk / each;
      const int64_t begin = (chunk % each) * kChunkElements, end = std::min(begin + kChunkElements, piece);
      return ReduceChunk(op, r * piece + begin, r * piece + end, r * piece, size_t(r), size_t(r) + 1);
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
