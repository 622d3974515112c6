#pragma once
// What a parameter is, whatever the layout: its name, logical shape, how tensor parallelism cuts it, how it is
// initialised. A parameter that is cut must say so here: a local shape is only ever derived from this declaration.

#include <cstdint>
#include <string>
#include <vector>

namespace trireme {

using Shape = std::vector<int64_t>;
int64_t NumElements(const Shape& shape);
std::string ShapeText(const Shape& shape);  // "[4, 128]"

enum class ParamKind { kMatrix, kNorm, kBias, kEmbedding };

struct Init {
  enum class Kind { kNormal, kOnes, kZeros } kind = Kind::kNormal;
  double std = 0.02;  // kNormal; element i of the logical tensor is std * Philox(seed, name).Normal(i)
};

// How the tensor-parallel axis places a parameter.
struct TpPlacement {
  int dim = -1;        // the dimension that is cut; -1: every rank holds all of it
  int64_t parts = 1;   // pieces that differ; divides tp. Ranks r with equal r / (tp / parts) hold the same piece
  int64_t padded = 0;  // size of `dim` after padding, a multiple of `parts`; 0: the logical size, which parts divides
};

struct ParamSpec {
  std::string name;  // Hugging Face name: the key in checkpoints, dumps and messages
  Shape shape;       // logical and global: no padding, no cut
  ParamKind kind = ParamKind::kMatrix;
  Init init;
  TpPlacement tp;
  int unit = 0;  // layer unit: 0 embedding, 1 .. L blocks, L + 1 final norm and head
};

}  // namespace trireme
