#pragma once
// Philox4x32-10 (Salmon et al., "Parallel Random Numbers: As Easy as 1, 2, 3", SC'11, section 4): a pure function of
// key and counter. Every random number of a run is keyed by what it is for (a parameter's name, a sample's position),
// never by who draws it or when, so that all layouts see the same numbers. Stateless: safe from any thread.

#include <array>
#include <cmath>
#include <cstdint>
#include <numbers>
#include <string_view>

namespace trireme {

class Philox {
 public:
  using Block = std::array<uint32_t, 4>;

  // Streams with different (seed, stream) are independent.
  constexpr Philox(uint64_t seed, uint64_t stream) : seed_(seed), stream_(stream) {}

  // Stream named by a text, e.g. a parameter's name (FNV-1a 64).
  constexpr Philox(uint64_t seed, std::string_view stream) : Philox(seed, HashName(stream)) {}

  // 128 random bits for counter `index`.
  constexpr Block At(uint64_t index) const {
    Block c{static_cast<uint32_t>(index), static_cast<uint32_t>(index >> 32), static_cast<uint32_t>(stream_),
            static_cast<uint32_t>(stream_ >> 32)};
    uint32_t k0 = static_cast<uint32_t>(seed_), k1 = static_cast<uint32_t>(seed_ >> 32);
    for (int round = 0; round < 10; ++round) {
      const uint64_t p0 = uint64_t{0xD2511F53} * c[0], p1 = uint64_t{0xCD9E8D57} * c[2];
      c = {static_cast<uint32_t>(p1 >> 32) ^ c[1] ^ k0, static_cast<uint32_t>(p1),
           static_cast<uint32_t>(p0 >> 32) ^ c[3] ^ k1, static_cast<uint32_t>(p0)};
      k0 += 0x9E3779B9;
      k1 += 0xBB67AE85;
    }
    return c;
  }

  constexpr uint64_t Bits64(uint64_t index) const {
    const Block b = At(index);
    return uint64_t{b[0]} | (uint64_t{b[1]} << 32);
  }

  // Uniform in [0, 1), 53 bits.
  constexpr double Uniform(uint64_t index) const { return static_cast<double>(Bits64(index) >> 11) * 0x1p-53; }

  // Standard normal of element `index` (Box-Muller; elements 2k and 2k+1 share one block).
  double Normal(uint64_t index) const {
    const Block b = At(index / 2);
    const double u = (static_cast<double>((uint64_t{b[0]} | (uint64_t{b[1]} << 32)) >> 11) + 0.5) * 0x1p-53;
    const double v = static_cast<double>((uint64_t{b[2]} | (uint64_t{b[3]} << 32)) >> 11) * 0x1p-53;
    const double radius = std::sqrt(-2.0 * std::log(u)), angle = 2.0 * std::numbers::pi * v;
    return radius * (index % 2 == 0 ? std::cos(angle) : std::sin(angle));
  }

  static constexpr uint64_t HashName(std::string_view name) {
    uint64_t h = 0xcbf29ce484222325;
    for (const char c : name) h = (h ^ static_cast<unsigned char>(c)) * 0x100000001b3;
    return h;
  }

 private:
  uint64_t seed_, stream_;
};

}  // namespace trireme
