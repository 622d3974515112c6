#pragma once
// Models as Hugging Face folders: config.json, model.safetensors or model.safetensors.index.json with its shards.

#include <filesystem>
#include <memory>

#include "checkpoint/tensor_source.h"
#include "model_spec/options.h"

namespace trireme {

// Shape, norms and rotary settings of a llama folder; `from` is set to the folder. UserError names file and field for
// whatever the model family here does not compute (other activations, biases, scaled RoPE, sliding windows).
ModelOptions ReadHuggingFaceConfig(const std::filesystem::path& folder);

std::unique_ptr<TensorSource> OpenHuggingFaceWeights(const std::filesystem::path& folder);

}  // namespace trireme
