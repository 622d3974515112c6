#pragma once
// A rank's parameters and gradients, each in one flat buffer. Units lie in the order in which backward completes them
// (head first), so that a bucket of gradients is a range of elements; inside a unit the order of the parameter table
// holds and fused neighbours touch; units are padded to a multiple of `align` elements so that shards come out equal.
// Reduction, clipping, the optimizer and checkpoints work on ranges of these buffers, never on lists of tensors.

#include <ATen/core/Tensor.h>

#include <deque>
#include <map>
#include <string>
#include <vector>

#include "kernels/param.h"
#include "sharding/sharding_table.h"

namespace trireme {

struct ElementRange {
  int64_t begin = 0, end = 0;
  int64_t size() const { return end - begin; }
  bool operator==(const ElementRange&) const = default;
};

class ParamStore : public ParamSource {
 public:
  // Values and gradients are zero until Initialize or a checkpoint fills the values.
  ParamStore(const ShardingTable& table, at::ScalarType type, int64_t align = 64);

  // Counter-based: element i of logical tensor `name` depends on (seed, name, i) only. Padding stays zero.
  void Initialize(uint64_t seed);

  Param Get(const std::vector<std::string>& names) override;

  const ShardingTable& table() const { return table_; }
  at::Tensor Value(const std::string& name) const;  // view, local shape with padding
  at::Tensor Grad(const std::string& name) const;
  const at::Tensor& values() const { return values_; }  // flat, [elements]
  const at::Tensor& grads() const { return grads_; }
  ElementRange RangeOf(const std::string& name) const;
  ElementRange UnitRange(int unit) const;                   // padding at its end included
  const std::vector<int>& units() const { return units_; }  // in buffer order

  // Elements of one kind that count alike in global sums; padding of units excluded; ascending.
  struct ParamRun {
    int64_t begin = 0, end = 0;
    ParamKind kind = ParamKind::kMatrix;
    bool counts = true;
  };
  std::vector<ParamRun> Runs() const;

  // Forgets the gradients: the first backward of a parameter overwrites. (No memory is touched.)
  void BeginStep();
  // Zero-fills gradients of a unit's parameters that no backward has written since BeginStep.
  void ClearUnwritten(int unit);

 private:
  ShardingTable table_;
  at::Tensor values_, grads_;
  std::vector<int> units_;
  std::map<int, ElementRange> unit_ranges_;
  std::map<std::string, ElementRange> ranges_;
  struct Taken {
    std::vector<std::string> names;
    ElementRange range;
    bool written;
  };
  std::deque<Taken> taken_;  // a deque: addresses of `written` stay
};

}  // namespace trireme
