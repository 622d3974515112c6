#include "checkpoint/read_box.h"

#include "base/error.h"
#include "checkpoint/manifest.h"

namespace trireme {

void CheckRead(const std::filesystem::path& file, const std::string& name, const Shape& shape,
               const Rectangle& rectangle, const at::Tensor& out) {
  TRIREME_CHECK(out.defined() && out.sizes() == at::IntArrayRef(rectangle.size),
                "{}: tensor '{}': box of size {} into {}", file.string(), name, ShapeText(rectangle.size),
                out.defined() ? ShapeText(out.sizes().vec()) : "an undefined tensor");
  // Where an empty box lies means nothing.
  if (out.numel() == 0 && rectangle.size.size() == shape.size()) return;
  if (const auto problem = BoundsProblem(shape, rectangle)) {
    FailUser("{}: tensor '{}': {}; does the model's shape match?", file.string(), name, *problem);
  }
}

at::Tensor Window(const at::Tensor& tensor, const Rectangle& outer, const Rectangle& inner) {
  at::Tensor view = tensor;
  for (size_t d = 0; d < inner.offset.size(); ++d) {
    view = view.narrow(static_cast<int64_t>(d), inner.offset[d] - outer.offset[d], inner.size[d]);
  }
  return view;
}

}  // namespace trireme
