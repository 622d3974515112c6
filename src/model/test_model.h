#pragma once
// A tiny llama in fp64 for tests: shapes with grouped heads and padding, parameters, and a batch with an ignored label.

#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>

#include <map>
#include <string>
#include <utility>
#include <vector>

#include "base/philox.h"
#include "kernels/param.h"
#include "model/stage.h"
#include "sharding/sharding_table.h"

namespace trireme::testing {

inline ModelOptions TinyLlama(bool tied) {
  ModelOptions m;
  m.layers = 2;
  m.hidden = 8;
  m.heads = 4;
  m.kv_heads = 2;
  m.head_dim = 2;
  m.ffn = 12;
  m.vocab = 11;
  m.seq = 5;
  m.padded_vocab = 4;
  m.tied = tied;
  m.init_std = 0.3;
  return m;
}

// Parameters with a tensor for each list that is asked for; random values that depend on name and global index alone.
class Params : public ParamSource {
 public:
  explicit Params(const ShardingTable& table) : table_(table) {}
  Param Get(const std::vector<std::string>& names) override {
    if (const auto at = entries_.find(names[0]); at != entries_.end())
      return {at->second.value, at->second.grad, &at->second.written};
    int64_t rows = 0;
    Shape shape = table_.Find(names[0]).local_shape;
    for (const std::string& name : names) rows += table_.Find(name).local_shape[0];
    shape[0] = rows;
    Entry& entry = entries_[names[0]];
    entry.value = at::zeros(shape, at::kDouble);
    entry.grad = at::zeros(shape, at::kDouble);
    int64_t row = 0;
    for (const std::string& name : names) {
      const LocalParam& param = table_.Find(name);
      at::Tensor value = entry.value.narrow(0, row, param.local_shape[0]);
      views_[name] = {value, entry.grad.narrow(0, row, param.local_shape[0])};
      row += param.local_shape[0];
      Fill(param, value);
    }
    return {entry.value, entry.grad, &entry.written};
  }
  void BeginStep() {
    for (auto& [name, entry] : entries_) entry.written = false;
  }
  at::Tensor Value(const std::string& name) { return views_.at(name).first; }
  at::Tensor Grad(const std::string& name) { return views_.at(name).second; }
  const ShardingTable& table() const { return table_; }

 private:
  struct Entry {
    at::Tensor value, grad;
    bool written = false;
  };
  static void Fill(const LocalParam& param, at::Tensor value) {
    const Philox random(3, param.spec.name);
    const int64_t global_columns = param.spec.shape.size() > 1 ? param.spec.shape[1] : 1;
    at::Tensor flat = value.view({value.size(0), -1});
    for (int64_t r = 0; r < param.rectangle.size[0]; ++r) {
      for (int64_t c = 0; c < (param.spec.shape.size() > 1 ? param.rectangle.size[1] : 1); ++c) {
        const int64_t column = param.spec.shape.size() > 1 ? param.rectangle.offset[1] + c : 0;
        const double x =
            0.3 * random.Normal(static_cast<uint64_t>((param.rectangle.offset[0] + r) * global_columns + column));
        flat[r][c].fill_(param.spec.kind == ParamKind::kNorm ? 1 + x : x);
      }
    }
  }
  ShardingTable table_;
  std::map<std::string, Entry> entries_;
  std::map<std::string, std::pair<at::Tensor, at::Tensor>> views_;
};

inline MicroBatch TinyBatch(const ModelOptions& m) {
  MicroBatch batch;
  batch.tokens_BT = at::empty({2, m.seq}, at::kLong);
  batch.labels_BT = at::empty({2, m.seq}, at::kLong);
  for (int64_t i = 0; i < 2 * m.seq; ++i) {
    batch.tokens_BT.mutable_data_ptr<int64_t>()[i] = (i * 7 + 3) % m.vocab;
    batch.labels_BT.mutable_data_ptr<int64_t>()[i] = i == 4 ? -100 : (i * 5 + 1) % m.vocab;
  }
  batch.loss_scale = 1.0 / 9;  // ten labels, one of them ignored
  return batch;
}

}  // namespace trireme::testing
