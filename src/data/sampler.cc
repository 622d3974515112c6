#include "data/sampler.h"

#include <bit>

#include "base/error.h"
#include "base/philox.h"

namespace trireme {
namespace {

// A permutation of 0 .. n-1 without a table: a Feistel network over the next even power of two, walked until the value
// is in range (Black & Rogaway 2002, "Ciphers with Arbitrary Finite Domains", cycle walking). At most four walks on
// average.
uint64_t Permute(uint64_t seed, uint64_t epoch, uint64_t value, uint64_t n) {
  const int half = (std::bit_width(n > 1 ? n - 1 : uint64_t{1}) + 1) / 2;
  const uint64_t mask = (uint64_t{1} << half) - 1;
  const Philox random(seed, Philox::HashName("sample order") ^ epoch);
  do {
    uint64_t left = value >> half, right = value & mask;
    for (uint64_t round = 0; round < 6; ++round) {
      const uint64_t next = left ^ (random.Bits64(right << 8 | round) & mask);
      left = right;
      right = next;
    }
    value = left << half | right;
  } while (value >= n);
  return value;
}

}  // namespace

int64_t NumSamples(int64_t tokens, int64_t seq) { return tokens > seq ? (tokens - 1) / seq : 0; }

Sampler::Sampler(uint64_t seed, int64_t samples, int64_t global_batch, bool shuffle)
    : seed_(seed),
      samples_(samples),
      global_batch_(global_batch),
      per_epoch_(samples / global_batch * global_batch),
      shuffle_(shuffle) {
  if (per_epoch_ == 0) {
    FailUser(
        "batch.global: {} sequences a step, but the training split has {}; take more text, or lower batch.global or "
        "model.seq",
        global_batch, samples);
  }
}

int64_t Sampler::At(int64_t consumed) const {
  const int64_t epoch = consumed / per_epoch_, position = consumed % per_epoch_;
  if (!shuffle_) return position;
  return static_cast<int64_t>(
      Permute(seed_, static_cast<uint64_t>(epoch), static_cast<uint64_t>(position), static_cast<uint64_t>(samples_)));
}

std::vector<int64_t> Sampler::Batch(int64_t consumed) const { return Batch(consumed, 1, 0); }

std::vector<int64_t> Sampler::Batch(int64_t consumed, int dp, int dp_rank) const {
  const int64_t mine = global_batch_ / dp;
  std::vector<int64_t> samples;
  for (int64_t i = 0; i < mine; ++i) samples.push_back(At(consumed + dp_rank * mine + i));
  return samples;
}

}  // namespace trireme
