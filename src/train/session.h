#pragma once
// Everything one rank trains with. Session owns; all others hold references. One Session is used by one thread.
// The methods are collective over the world: all ranks call them in the same order.

#include <functional>
#include <memory>
#include <vector>

#include "checkpoint/checkpoint.h"
#include "comm/mesh_comms.h"
#include "config/config.h"
#include "data/batch_loader.h"
#include "data/sampler.h"
#include "data_parallel/param_store.h"
#include "data_parallel/reducer.h"
#include "model/stage.h"
#include "optim/optimizer.h"
#include "train/training_data.h"

namespace trireme {

struct StepResult {
  double loss = 0;       // mean over the valid labels of the global batch, before the update
  double grad_norm = 0;  // of the whole model, before clipping
  double lr = 0;
  int64_t tokens = 0;   // valid labels of the global batch
  bool updated = true;  // false: no valid label, or a gradient that is not finite under on_nan: skip
  bool stop = false;    // some rank asked to stop
};

class Session {
 public:
  // config is resolved and trainable. The weights are random, or those of model.from. `world` outlives the session.
  Session(const Config& config, const TrainingData& data, Communicator& world);

  // Optimizer step `step` (from 1). want_stop is this rank's wish, agreed by all in `stop`. on_gradients, if given,
  // runs when the gradients are reduced, before clipping and the update. Throws Error when the gradient is not finite
  // and on_nan is stop.
  StepResult Step(int64_t step, bool want_stop = false, const std::function<void()>& on_gradients = {});
  // Checksum of the global batch of step `step`: the same whatever the layout.
  uint64_t DataHash(int64_t step);

  // Mean loss over the validation tokens. Only when HasValidation.
  double ValidationLoss();
  bool HasValidation() const { return validation_ != nullptr; }

  // Parameters and optimizer state, as SaveCheckpoint takes them: this rank passes what no other rank passes.
  std::vector<TensorPiece> CheckpointPieces() const;
  // Restores what CheckpointPieces saved; any source layout.
  void Load(const TensorSource& source);

  const Config& config() const { return config_; }
  const Mesh& mesh() const { return mesh_; }
  const Coordinate& coordinate() const { return coordinate_; }
  MeshComms& comms() { return comms_; }
  CommRecorder& recorder() { return recorder_; }
  ParamStore& params() { return *params_; }
  Bytes PeakBytes() const;  // parameters, gradients, optimizer state, activations and temporaries of this rank

 private:
  double ForwardBackward(const std::vector<MicroBatch>& batches);
  std::vector<MicroBatch> LoadMicroBatches(BatchLoader& loader, const std::vector<int64_t>& samples) const;

  Config config_;
  Mesh mesh_;
  Coordinate coordinate_;
  CommRecorder recorder_;
  MeshComms comms_;
  std::unique_ptr<ParamStore> params_;
  std::unique_ptr<ModelStage> stage_;
  std::unique_ptr<Reducer> reducer_;
  std::vector<UpdateRange> ranges_;
  std::unique_ptr<Optimizer> optimizer_;
  std::unique_ptr<BatchLoader> loader_, validation_;
  std::unique_ptr<Sampler> sampler_;
  std::shared_ptr<ModelStage::Activations> kept_;
  int64_t validation_samples_ = 0;
};

// Fills `params` from named global tensors; padding rows stay zero.
void LoadParameters(const TensorSource& source, const ParamStore& params);

at::ScalarType ComputeType(const PrecisionOptions& precision);

}  // namespace trireme
