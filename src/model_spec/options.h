#pragma once
// The shape of the model. Section `model` of the configuration.

#include <cstdint>
#include <string>

namespace trireme {

struct ModelOptions {
  std::string family = "llama";
  std::string from;
  int64_t layers = 4;
  int64_t hidden = 128;
  int64_t heads = 4;
  int64_t kv_heads = 0;
  int64_t ffn = 0;
  int64_t vocab = 256;
  int64_t seq = 256;
  int64_t head_dim = 0;
  bool tied = false;
  double rope_theta = 10000.0;
  double norm_eps = 1e-5;
  double init_std = 0.02;
  int64_t padded_vocab = 128;

  template <class Visitor>
  void VisitFields(Visitor& v) {
    v.Field("family", family, "llama: RMSNorm, RoPE, SwiGLU, grouped-query attention");
    v.Field("from", from, "Hugging Face folder (config.json, model.safetensors): shape and initial weights");
    v.Field("layers", layers, "transformer blocks");
    v.Field("hidden", hidden, "width of the residual stream");
    v.Field("heads", heads, "query heads");
    v.Field("kv_heads", kv_heads, "key and value heads; 0 means heads (no grouping)");
    v.Field("ffn", ffn, "width inside the MLP; 0 means 8/3 of hidden, rounded up to a multiple of 32");
    v.Field("vocab", vocab, "tokens the model knows; 256 for the byte tokenizer");
    v.Field("seq", seq, "tokens of one training sequence");
    v.Field("head_dim", head_dim, "width of one head; 0 means hidden / heads");
    v.Field("tied", tied, "the output head is the embedding matrix");
    v.Field("rope_theta", rope_theta, "base of the rotary embedding's wavelengths");
    v.Field("norm_eps", norm_eps, "added to the mean square in RMSNorm");
    v.Field("init_std", init_std,
            "standard deviation of initial weights; outputs of a block get init_std / sqrt(2 layers)");
    v.Field("padded_vocab", padded_vocab,
            "each tensor-parallel rank's vocabulary rows are padded to a multiple of this (a GEMM likes it)");
  }
};

}  // namespace trireme
