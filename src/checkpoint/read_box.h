#pragma once
// Boxes of tensors in memory, as every TensorSource reads them.

#include <ATen/core/Tensor.h>

#include <filesystem>
#include <string>

#include "sharding/sharding_table.h"

namespace trireme {

// Checks the arguments of TensorSource::Read: UserError naming file and tensor when the box lies outside `shape`, Error
// when `out` has another shape than the box.
void CheckRead(const std::filesystem::path& file, const std::string& name, const Shape& shape,
               const Rectangle& rectangle, const at::Tensor& out);

// View of the part `inner` of a tensor that holds `outer`; both are boxes of the same global tensor.
at::Tensor Window(const at::Tensor& tensor, const Rectangle& outer, const Rectangle& inner);

}  // namespace trireme
