#pragma once
// The names a user may have meant.

#include <string>
#include <string_view>
#include <vector>

namespace trireme {

// Up to three of `known`, nearest first by edit distance; names too far off are left out.
std::vector<std::string> NearestNames(std::string_view name, const std::vector<std::string>& known);

// "; did you mean a or b?" or, with no near name, "; known: a, b, ...".
std::string Suggest(std::string_view name, const std::vector<std::string>& known);

}  // namespace trireme
