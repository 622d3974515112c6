#pragma once
// Named global tensors that can be read box by box: a checkpoint, a safetensors file, a Hugging Face folder.

#include <ATen/core/Tensor.h>

#include <string>
#include <vector>

#include "sharding/sharding_table.h"

namespace trireme {

class TensorSource {
 public:
  virtual ~TensorSource() = default;
  virtual std::vector<std::string> Names() const = 0;
  virtual bool Has(const std::string& name) const = 0;
  virtual Shape ShapeOf(const std::string& name) const = 0;
  // Fills `out` (shape rectangle.size, any strides, fp32 or fp64) with that box, converting the type if need be. Throws
  // UserError naming file and tensor when it is missing or the box lies outside.
  virtual void Read(const std::string& name, const Rectangle& rectangle, const at::Tensor& out) const = 0;
};

}  // namespace trireme
