#pragma once
// manifest.json of a checkpoint: what is stored where. Plain data; safe from any thread.

#include <cstdint>
#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "sharding/sharding_table.h"

namespace trireme {

struct StoredBox {
  std::string file;  // a file of Manifest::files
  std::string key;   // the box's name in that file
  Rectangle rectangle;
};

struct StoredTensor {
  std::string dtype;             // as safetensors names it
  Shape shape;                   // global
  std::vector<StoredBox> boxes;  // partition the tensor
};

struct StoredFile {
  int64_t bytes = 0;
  std::string xxh3;  // HashText
};

struct Manifest {
  int64_t step = 0;
  nlohmann::json state;
  std::map<std::string, StoredTensor> tensors;
  std::map<std::string, StoredFile> files;
};

std::string ManifestText(const Manifest& manifest);

// Reads fields and bounds only; `where` stands in messages. UserError names field, expected and found.
Manifest ParseManifest(std::string_view text, const std::string& where);

// Reads checkpoint/manifest.json and checks it: fields, boxes that partition their tensors, files of the right sizes.
// UserError names file, field, expected and found.
Manifest ReadManifest(const std::filesystem::path& checkpoint);

// Why the boxes (none empty) do not partition a tensor of this shape; none when they do.
std::optional<std::string> PartitionProblem(const Shape& shape, const std::vector<StoredBox>& boxes);

// Why the box does not lie inside the shape; none when it does.
std::optional<std::string> BoundsProblem(const Shape& shape, const Rectangle& rectangle);

std::string RectangleText(const Rectangle& rectangle);  // "offset [0, 4] size [2, 4]"

}  // namespace trireme
