#pragma once
// Quantities that must not be mixed up. A plain number never becomes a unit by accident, and a unit never another one.

#include <compare>
#include <cstdint>

namespace trireme {

template <class Tag, class Number>
struct Quantity {
  Number value{};

  constexpr Quantity() = default;
  constexpr explicit Quantity(Number v) : value(v) {}

  constexpr auto operator<=>(const Quantity&) const = default;
  constexpr Quantity operator+(Quantity o) const { return Quantity(value + o.value); }
  constexpr Quantity operator-(Quantity o) const { return Quantity(value - o.value); }
  constexpr Quantity operator*(Number k) const { return Quantity(value * k); }
  constexpr Quantity& operator+=(Quantity o) {
    value += o.value;
    return *this;
  }
  constexpr Quantity& operator-=(Quantity o) {
    value -= o.value;
    return *this;
  }
  // The ratio of two like quantities is a plain number.
  constexpr double operator/(Quantity o) const { return static_cast<double>(value) / static_cast<double>(o.value); }
};

using Bytes = Quantity<struct BytesTag, int64_t>;
using Flops = Quantity<struct FlopsTag, double>;  // floating-point operations (a count, not a rate)
using Seconds = Quantity<struct SecondsTag, double>;

}  // namespace trireme
