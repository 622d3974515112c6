#include "config/nearest.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <numeric>
#include <utility>

namespace trireme {
namespace {

size_t EditDistance(std::string_view a, std::string_view b) {
  std::vector<size_t> row(b.size() + 1);
  std::iota(row.begin(), row.end(), size_t{0});
  for (size_t i = 0; i < a.size(); ++i) {
    size_t diagonal = std::exchange(row[0], i + 1);
    for (size_t j = 0; j < b.size(); ++j) {
      const size_t change = diagonal + (a[i] != b[j]);
      diagonal = row[j + 1];
      row[j + 1] = std::min({change, row[j] + 1, diagonal + 1});
    }
  }
  return row.back();
}

}  // namespace

std::vector<std::string> NearestNames(std::string_view name, const std::vector<std::string>& known) {
  std::vector<std::pair<size_t, std::string>> near;
  for (const std::string& candidate : known) {
    const size_t distance = EditDistance(name, candidate);
    // The last part of a path counts too: `dp` for `parallel.dp`.
    const size_t dot = candidate.rfind('.');
    const size_t tail = dot == std::string::npos ? distance : EditDistance(name, candidate.substr(dot + 1));
    const size_t best = std::min(distance, tail);
    if (best <= std::max<size_t>(1, name.size() / 3)) near.emplace_back(best, candidate);
  }
  std::ranges::stable_sort(near, {}, [](const auto& pair) { return pair.first; });
  std::vector<std::string> names;
  for (const auto& [distance, candidate] : near) {
    if (names.size() < 3) names.push_back(candidate);
  }
  return names;
}

std::string Suggest(std::string_view name, const std::vector<std::string>& known) {
  const std::vector<std::string> near = NearestNames(name, known);
  if (near.empty()) return fmt::format("; known: {}", fmt::join(known, ", "));
  return fmt::format("; did you mean {}?", fmt::join(near, " or "));
}

}  // namespace trireme
