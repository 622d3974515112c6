#pragma once
// A run of consecutive layer units (embedding, blocks, final norm and head) as one rank executes them. Parameter names
// and unit numbers stay those of the whole model. Explicit forward and backward: nothing here is on an autograd tape.
//
// Several micro-batches may be in flight; each has its own Activations. One stage is used by one thread.

#include <ATen/core/Tensor.h>

#include <functional>
#include <memory>
#include <vector>

#include "comm/communicator.h"
#include "kernels/arena.h"
#include "kernels/param.h"
#include "model_spec/options.h"

namespace trireme {

class Unit;  // model/unit.h

struct MicroBatch {
  at::Tensor tokens_BT;   // int64
  at::Tensor labels_BT;   // int64, -100: not a label
  double loss_scale = 1;  // 1 / valid labels of the global batch: gradients are those of scale * sum(loss)
};

class ModelStage {
 public:
  // What one micro-batch keeps between its forward and its backward: memory and the units' saved tensors.
  class Activations;

  // Units first_unit .. last_unit - 1 of 0 .. layers + 1. `tp` must outlive the stage. model is resolved.
  ModelStage(const ModelOptions& model, at::ScalarType compute, ParamSource& params, Communicator& tp, int first_unit,
             int last_unit);
  ~ModelStage();

  std::shared_ptr<Activations> NewActivations() const;

  // input: [T, D] from the stage before; undefined on the first stage. Returns [T, D] (lives in `kept`), undefined on
  // the last stage, where LossSum is set instead.
  at::Tensor Forward(const at::Tensor& input, const MicroBatch& batch, Activations& kept);
  // Sum of the losses of the micro-batch's valid labels (not scaled). Only on the last stage, after Forward.
  double LossSum(const Activations& kept) const;

  // Full backward: input gradients and weight gradients unit by unit, so that collectives over tp run behind weight
  // gradients. `unit_done(unit)` is called when a unit's gradients are complete for this micro-batch. Returns d(input),
  // undefined on the first stage. dy: undefined on the last stage. Empties `kept` for reuse.
  at::Tensor Backward(const at::Tensor& dy, Activations& kept, const std::function<void(int unit)>& unit_done = {});
  // The same in two parts (zero-bubble schedules). BackwardInput keeps in `kept` what BackwardWeight needs.
  at::Tensor BackwardInput(const at::Tensor& dy, Activations& kept);
  void BackwardWeight(Activations& kept, const std::function<void(int unit)>& unit_done = {});

  // Last stage only: logits of the last position of each sequence, [B, vocab] (padding removed, gathered over tp).
  // A forward without labels and without keeping anything.
  at::Tensor LastLogits(const at::Tensor& tokens_BT);

  // Highest bytes of activations and temporaries so far.
  Bytes peak() const;

 private:
  at::Tensor BackwardUnits(const at::Tensor& dy, Activations& kept, bool with_weights,
                           const std::function<void(int)>& unit_done);

  ModelOptions model_;
  int first_unit_, last_unit_;
  std::vector<std::unique_ptr<Unit>> units_;
  Arena scratch_;
  Bytes activations_peak_;
};

}  // namespace trireme
