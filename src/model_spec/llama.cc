#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "model_spec/model_spec.h"

namespace trireme {

int64_t PaddedVocab(const ModelOptions& model, int tp) {
  const int64_t multiple = model.padded_vocab * tp;
  return (model.vocab + multiple - 1) / multiple * multiple;
}

std::vector<ParamSpec> ParamTable(const ModelOptions& m, int tp) {
  const Init normal{Init::Kind::kNormal, m.init_std}, ones{Init::Kind::kOnes, 0};
  // Each block adds twice to the residual stream: its outputs start smaller, as GPT-2's do (Radford et al. 2019, 2.3).
  const Init output{Init::Kind::kNormal, m.init_std / std::sqrt(2.0 * static_cast<double>(m.layers))};
  const TpPlacement whole, columns{0, tp, 0}, rows{1, tp, 0}, vocabulary{0, tp, PaddedVocab(m, tp)};
  const TpPlacement kv_columns{0, std::min<int64_t>(tp, m.kv_heads), 0};
  const int64_t q = m.heads * m.head_dim, kv = m.kv_heads * m.head_dim;

  std::vector<ParamSpec> table;
  table.push_back({"model.embed_tokens.weight", {m.vocab, m.hidden}, ParamKind::kEmbedding, normal, vocabulary, 0});
  for (int64_t layer = 0; layer < m.layers; ++layer) {
    const int unit = static_cast<int>(layer) + 1;
    const auto add = [&](const char* name, Shape shape, ParamKind kind, Init init, TpPlacement placement) {
      table.push_back(
          {fmt::format("model.layers.{}.{}.weight", layer, name), std::move(shape), kind, init, placement, unit});
    };
    add("input_layernorm", {m.hidden}, ParamKind::kNorm, ones, whole);
    add("self_attn.q_proj", {q, m.hidden}, ParamKind::kMatrix, normal, columns);
    add("self_attn.k_proj", {kv, m.hidden}, ParamKind::kMatrix, normal, kv_columns);
    add("self_attn.v_proj", {kv, m.hidden}, ParamKind::kMatrix, normal, kv_columns);
    add("self_attn.o_proj", {m.hidden, q}, ParamKind::kMatrix, output, rows);
    add("post_attention_layernorm", {m.hidden}, ParamKind::kNorm, ones, whole);
    add("mlp.gate_proj", {m.ffn, m.hidden}, ParamKind::kMatrix, normal, columns);
    add("mlp.up_proj", {m.ffn, m.hidden}, ParamKind::kMatrix, normal, columns);
    add("mlp.down_proj", {m.hidden, m.ffn}, ParamKind::kMatrix, output, rows);
  }
  const int head = static_cast<int>(m.layers) + 1;
  table.push_back({"model.norm.weight", {m.hidden}, ParamKind::kNorm, ones, whole, head});
  if (!m.tied) table.push_back({"lm_head.weight", {m.vocab, m.hidden}, ParamKind::kMatrix, normal, vocabulary, head});
  return table;
}

int64_t NumParameters(const ModelOptions& model) {
  int64_t n = 0;
  for (const ParamSpec& spec : ParamTable(model, 1)) n += NumElements(spec.shape);
  return n;
}

Flops TrainFlopsPerToken(const ModelOptions& m) {
  const int64_t q = m.heads * m.head_dim, kv = m.kv_heads * m.head_dim;
  const int64_t matrices = m.layers * (m.hidden * (2 * q + 2 * kv) + 3 * m.hidden * m.ffn) + m.vocab * m.hidden;
  // Scores and their product with the values: 2 x 2 x q for each of the (seq + 1) / 2 keys that a token sees on
  // average.
  const double attention =
      static_cast<double>(m.layers) * 4.0 * static_cast<double>(q) * static_cast<double>(m.seq + 1) / 2.0;
  return Flops(3.0 * (2.0 * static_cast<double>(matrices) + attention));
}

}  // namespace trireme
