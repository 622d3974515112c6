#pragma once
// From a model's shape to its table of parameters, FLOPs and bytes; one file a family. Pure functions of resolved
// options (ResolveConfig: no zeros left, all rules checked).

#include <cstdint>
#include <vector>

#include "base/units.h"
#include "model_spec/options.h"
#include "sharding/param_spec.h"

namespace trireme {

// The parameters in canonical order (embedding, blocks, final norm, head), with their cut over `tp` ranks.
// Adjacent in the table and fused by layers: q|k|v, gate|up.
std::vector<ParamSpec> ParamTable(const ModelOptions& model, int tp);

// Rows of the embedding after padding for `tp` ranks: the next multiple of padded_vocab * tp.
int64_t PaddedVocab(const ModelOptions& model, int tp);

int64_t NumParameters(const ModelOptions& model);

// Forward and backward of one token in a sequence of model.seq tokens, matrix products only: 3 x forward; attention
// counts the causal half (PaLM, Chowdhery et al. 2022, appendix B, without its factor for full attention).
// Recomputation never counts.
Flops TrainFlopsPerToken(const ModelOptions& model);

}  // namespace trireme
