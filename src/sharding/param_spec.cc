#include "sharding/param_spec.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

namespace trireme {

int64_t NumElements(const Shape& shape) {
  int64_t n = 1;
  for (const int64_t size : shape) n *= size;
  return n;
}

std::string ShapeText(const Shape& shape) { return fmt::format("[{}]", fmt::join(shape, ", ")); }

}  // namespace trireme
