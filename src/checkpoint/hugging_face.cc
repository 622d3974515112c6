#include "checkpoint/hugging_face.h"

#include <c10/core/GradMode.h>

#include <map>
#include <optional>

#include "base/error.h"
#include "checkpoint/json_input.h"
#include "checkpoint/read_box.h"
#include "checkpoint/safetensors.h"

namespace trireme {
namespace {

// Fields of config.json; null counts as absent, as transformers writes it.
class ConfigFile {
 public:
  explicit ConfigFile(const std::filesystem::path& path) : where_(path.string()), json_(ReadJsonObject(path)) {}

  const std::string& where() const { return where_; }

  const nlohmann::json* Find(const char* key) const {
    const auto it = json_.find(key);
    return it == json_.end() || it->is_null() ? nullptr : &*it;
  }

  int64_t Positive(const char* key, std::optional<int64_t> otherwise = std::nullopt) const {
    if (Find(key) == nullptr && otherwise) return *otherwise;
    const int64_t value = CountMember(json_, key, where_);
    if (value == 0) FailUser("{}: field '{}': expected an integer of 1 or more, got 0", where_, key);
    return value;
  }

  double PositiveReal(const nlohmann::json& value, const char* key) const {
    if (!value.is_number() || !(value.get<double>() > 0)) {
      FailUser("{}: field '{}': expected a number above 0, got {}", where_, key, ValueText(value));
    }
    return value.get<double>();
  }

  bool Flag(const char* key) const {
    const nlohmann::json* value = Find(key);
    if (value == nullptr) return false;
    if (!value->is_boolean())
      FailUser("{}: field '{}': expected true or false, got {}", where_, key, ValueText(*value));
    return value->get<bool>();
  }

  // Refuses any value but those that mean "not used".
  void Unused(const char* key, const nlohmann::json& neutral, const char* why) const {
    const nlohmann::json* value = Find(key);
    if (value != nullptr && *value != neutral) {
      FailUser("{}: field '{}': got {}, but only {} works here: {}", where_, key, ValueText(*value), ValueText(neutral),
               why);
    }
  }

 private:
  std::string where_;
  nlohmann::json json_;
};

// A dictionary of rotary settings, from before (rope_scaling) and since (rope_parameters) transformers 5. Returns the
// wavelength base, when it is in there.
std::optional<double> ReadRope(const ConfigFile& config, const char* key) {
  const nlohmann::json* rope = config.Find(key);
  if (rope == nullptr) return std::nullopt;
  if (!rope->is_object()) FailUser("{}: field '{}': expected an object, got {}", config.where(), key, ValueText(*rope));
  for (const char* type : {"rope_type", "type"}) {
    const auto it = rope->find(type);
    if (it != rope->end() && *it != "default") {
      FailUser("{}: field '{}.{}': got {}; scaled rotary embeddings are not computed here, only \"default\"",
               config.where(), key, type, ValueText(*it));
    }
  }
  const auto part = rope->find("partial_rotary_factor");
  if (part != rope->end() && *part != 1.0) {
    FailUser("{}: field '{}.partial_rotary_factor': got {}; only 1 works here: whole heads are rotated", config.where(),
             key, ValueText(*part));
  }
  const auto theta = rope->find("rope_theta");
  if (theta == rope->end()) return std::nullopt;
  return config.PositiveReal(*theta, "rope_theta");
}

class HuggingFaceWeights : public TensorSource {
 public:
  explicit HuggingFaceWeights(const std::filesystem::path& folder) : path_(folder / "model.safetensors") {
    if (std::filesystem::exists(path_)) {
      const SafetensorsFile& file = files_.try_emplace(path_.filename().string(), path_).first->second;
      for (const auto& [name, entry] : file.entries()) tensors_[name] = &file;
      return;
    }
    path_ = folder / "model.safetensors.index.json";
    if (!std::filesystem::exists(path_)) {
      FailUser("{}: expected model.safetensors or model.safetensors.index.json in this folder, found neither",
               folder.string());
    }
    const nlohmann::json index = ReadJsonObject(path_);
    const nlohmann::json& map = ObjectMember(index, "weight_map", path_.string());
    for (const auto& [name, value] : map.items()) {
      const std::string& shard = TextMember(map, name.c_str(), path_.string() + ": weight_map");
      CheckPlainFileName(shard, path_.string());
      const SafetensorsFile& file = files_.try_emplace(shard, folder / shard).first->second;
      file.Find(name);
      tensors_[name] = &file;
    }
  }

  std::vector<std::string> Names() const override {
    std::vector<std::string> names;
    for (const auto& [name, file] : tensors_) names.push_back(name);
    return names;
  }
  bool Has(const std::string& name) const override { return tensors_.contains(name); }
  Shape ShapeOf(const std::string& name) const override { return File(name).Find(name).shape; }

  void Read(const std::string& name, const Rectangle& rectangle, const at::Tensor& out) const override {
    const c10::NoGradGuard no_grad;
    const SafetensorsFile& file = File(name);
    const Shape& shape = file.Find(name).shape;
    CheckRead(file.path(), name, shape, rectangle, out);
    if (out.numel() == 0) return;
    out.copy_(Window(file.View(name), {Shape(shape.size(), 0), shape}, rectangle));
  }

 private:
  const SafetensorsFile& File(const std::string& name) const {
    const auto it = tensors_.find(name);
    if (it == tensors_.end()) {
      FailUser("{}: tensor '{}' is missing (there are {} tensors)", path_.string(), name, tensors_.size());
    }
    return *it->second;
  }

  std::filesystem::path path_;  // the single file or the index
  std::map<std::string, SafetensorsFile> files_;
  std::map<std::string, const SafetensorsFile*> tensors_;
};

}  // namespace

ModelOptions ReadHuggingFaceConfig(const std::filesystem::path& folder) {
  const ConfigFile config(folder / "config.json");
  config.Unused("model_type", "llama", "the model family is llama");
  config.Unused("hidden_act", "silu", "the MLP is SwiGLU");
  config.Unused("attention_bias", false, "linear layers have no bias");
  config.Unused("mlp_bias", false, "linear layers have no bias");
  config.Unused("attention_dropout", 0.0, "attention has no dropout");
  config.Unused("partial_rotary_factor", 1.0, "whole heads are rotated");
  for (const char* key : {"sliding_window", "quantization_config"}) {
    if (const nlohmann::json* value = config.Find(key)) {
      FailUser("{}: field '{}': got {}; expected none: this model family does not compute it", config.where(), key,
               ValueText(*value));
    }
  }

  // Defaults are those of transformers' LlamaConfig.
  ModelOptions model;
  model.from = folder.string();
  model.hidden = config.Positive("hidden_size");
  model.ffn = config.Positive("intermediate_size");
  model.layers = config.Positive("num_hidden_layers");
  model.heads = config.Positive("num_attention_heads");
  model.kv_heads = config.Positive("num_key_value_heads", model.heads);
  model.vocab = config.Positive("vocab_size");
  model.seq = config.Positive("max_position_embeddings", 2048);
  model.tied = config.Flag("tie_word_embeddings");
  const nlohmann::json* eps = config.Find("rms_norm_eps");
  model.norm_eps = eps != nullptr ? config.PositiveReal(*eps, "rms_norm_eps") : 1e-6;
  if (config.Find("head_dim") == nullptr && model.hidden % model.heads != 0) {
    FailUser("{}: field 'hidden_size': {} is not a multiple of num_attention_heads {}, and there is no head_dim",
             config.where(), model.hidden, model.heads);
  }
  model.head_dim = config.Positive("head_dim", model.hidden / model.heads);
  if (model.heads % model.kv_heads != 0) {
    FailUser("{}: field 'num_key_value_heads': {} does not divide num_attention_heads {}", config.where(),
             model.kv_heads, model.heads);
  }

  const std::optional<double> newer = ReadRope(config, "rope_parameters"), older = ReadRope(config, "rope_scaling");
  const nlohmann::json* theta = config.Find("rope_theta");
  model.rope_theta = newer              ? *newer
                     : theta != nullptr ? config.PositiveReal(*theta, "rope_theta")
                                        : older.value_or(10000.0);
  return model;
}

std::unique_ptr<TensorSource> OpenHuggingFaceWeights(const std::filesystem::path& folder) {
  return std::make_unique<HuggingFaceWeights>(folder);
}

}  // namespace trireme
