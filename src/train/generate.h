#pragma once
// Continues a text with a trained model.

#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>
#include <string_view>

namespace trireme {

struct GenerateRequest {
  std::filesystem::path checkpoint;  // a step folder, or a folder of checkpoints (its newest is taken)
  std::string prompt;
  int64_t tokens = 200;
  double temperature = 0.7;  // 0: always the likeliest
  uint64_t seed = 1;
};

// Calls `emit` for each piece of text as it is drawn. The same request gives the same text.
void Generate(const GenerateRequest& request, const std::function<void(std::string_view)>& emit);

}  // namespace trireme
