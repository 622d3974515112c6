#pragma once
// Which samples a step trains on: a pure function of (seed, consumed samples, global batch), whatever the layout.
// Sample i of a token file is tokens[i*seq : i*seq+seq+1]. An epoch holds floor(samples / global) * global samples:
// what is left over is dropped, so that no batch crosses an epoch. Shuffled, each epoch visits the samples in an order
// of its own.

#include <cstdint>
#include <vector>

namespace trireme {

// Samples in `tokens` tokens: (tokens - 1) / seq, 0 when there are fewer than seq + 1.
int64_t NumSamples(int64_t tokens, int64_t seq);

class Sampler {
 public:
  // UserError when there are fewer samples than one global batch (names the split, needed and present tokens).
  Sampler(uint64_t seed, int64_t samples, int64_t global_batch, bool shuffle);

  // The sample at position `consumed` of the whole run.
  int64_t At(int64_t consumed) const;
  // Samples of the step that begins after `consumed`, in global order (size global_batch).
  std::vector<int64_t> Batch(int64_t consumed) const;
  // The part of Batch for one data-parallel rank: consecutive, global_batch / dp samples.
  std::vector<int64_t> Batch(int64_t consumed, int dp, int dp_rank) const;

  int64_t samples_per_epoch() const { return per_epoch_; }

 private:
  uint64_t seed_;
  int64_t samples_, global_batch_, per_epoch_;
  bool shuffle_;
};

}  // namespace trireme
