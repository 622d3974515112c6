#include "checkpoint/manifest.h"

#include <algorithm>

#include "base/error.h"
#include "base/file.h"
#include "checkpoint/json_input.h"

namespace trireme {
namespace {

constexpr const char* kFormat = "trireme-checkpoint";
constexpr int64_t kVersion = 1;

// NumElements for shapes that nobody has checked.
std::optional<int64_t> CheckedElements(const Shape& shape) {
  int64_t n = 1;
  for (const int64_t size : shape) {
    if (__builtin_mul_overflow(n, size, &n)) return std::nullopt;
  }
  return n;
}

StoredTensor ParseTensor(const nlohmann::json& json, const Manifest& manifest, const std::string& where) {
  StoredTensor tensor;
  tensor.dtype = TextMember(json, "dtype", where);
  tensor.shape = ShapeMember(json, "shape", where);
  if (!CheckedElements(tensor.shape)) FailUser("{}: shape {} is too large", where, ShapeText(tensor.shape));
  const nlohmann::json& boxes = Member(json, "boxes", where);
  if (!boxes.is_array()) FailUser("{}: field 'boxes': expected a list, got {}", where, ValueText(boxes));
  for (const nlohmann::json& item : boxes) {
    StoredBox box{TextMember(item, "file", where),
                  TextMember(item, "key", where),
                  {ShapeMember(item, "offset", where), ShapeMember(item, "size", where)}};
    if (!manifest.files.contains(box.file)) FailUser("{}: file '{}' is not listed under 'files'", where, box.file);
    if (const auto problem = BoundsProblem(tensor.shape, box.rectangle)) FailUser("{}: {}", where, *problem);
    if (NumElements(box.rectangle.size) == 0) {
      FailUser("{}: box {} is empty; expected only boxes with elements", where, RectangleText(box.rectangle));
    }
    tensor.boxes.push_back(std::move(box));
  }
  return tensor;
}

void CheckFile(const std::filesystem::path& path, int64_t bytes) {
  std::error_code error;
  const auto found = std::filesystem::file_size(path, error);
  if (error) {
    FailUser("{}: expected a file of {} bytes, as the manifest says: {}", path.string(), bytes, error.message());
  }
  if (found != static_cast<uint64_t>(bytes)) {
    FailUser(
        "{}: expected {} bytes, as the manifest says, found {}: the file was cut short or replaced; use an "
        "earlier checkpoint",
        path.string(), bytes, found);
  }
}

}  // namespace

std::string RectangleText(const Rectangle& rectangle) {
  return fmt::format("offset {} size {}", ShapeText(rectangle.offset), ShapeText(rectangle.size));
}

std::optional<std::string> BoundsProblem(const Shape& shape, const Rectangle& rectangle) {
  bool inside = rectangle.offset.size() == shape.size() && rectangle.size.size() == shape.size();
  for (size_t d = 0; inside && d < shape.size(); ++d) {
    const int64_t offset = rectangle.offset[d], size = rectangle.size[d];
    inside = offset >= 0 && size >= 0 && offset <= shape[d] && size <= shape[d] - offset;
  }
  if (inside) return std::nullopt;
  return fmt::format("box {} lies outside the tensor of shape {}", RectangleText(rectangle), ShapeText(shape));
}

std::optional<std::string> PartitionProblem(const Shape& shape, const std::vector<StoredBox>& boxes) {
  std::vector<const StoredBox*> order;
  int64_t covered = 0;
  for (const StoredBox& box : boxes) {
    order.push_back(&box);
    covered += NumElements(box.rectangle.size);
  }
  std::sort(order.begin(), order.end(),
            [](const StoredBox* a, const StoredBox* b) { return a->rectangle.offset < b->rectangle.offset; });
  for (size_t i = 0; i < order.size(); ++i) {
    const Rectangle& a = order[i]->rectangle;
    for (size_t j = i + 1; j < order.size(); ++j) {
      const Rectangle& b = order[j]->rectangle;
      if (!shape.empty() && b.offset[0] >= a.offset[0] + a.size[0]) break;  // nor do those after b reach into a
      if (NumElements(Intersect(a, b).size) > 0) {
        return fmt::format("boxes overlap: {} in {} and {} in {}; a replicated tensor must be given by one rank only",
                           RectangleText(a), order[i]->file, RectangleText(b), order[j]->file);
      }
    }
  }
  // Boxes that lie inside and do not overlap cover the tensor when they have as many elements.
  if (covered == NumElements(shape)) return std::nullopt;
  return fmt::format("{} boxes cover {} of the {} elements of shape {}", boxes.size(), covered, NumElements(shape),
                     ShapeText(shape));
}

std::string ManifestText(const Manifest& manifest) {
  nlohmann::json tensors = nlohmann::json::object(), files = nlohmann::json::object();
  for (const auto& [name, tensor] : manifest.tensors) {
    nlohmann::json boxes = nlohmann::json::array();
    for (const StoredBox& box : tensor.boxes) {
      boxes.push_back(
          {{"file", box.file}, {"key", box.key}, {"offset", box.rectangle.offset}, {"size", box.rectangle.size}});
    }
    tensors[name] = {{"dtype", tensor.dtype}, {"shape", tensor.shape}, {"boxes", std::move(boxes)}};
  }
  for (const auto& [name, file] : manifest.files) files[name] = {{"bytes", file.bytes}, {"xxh3", file.xxh3}};
  const nlohmann::json json = {{"format", kFormat},       {"version", kVersion},           {"step", manifest.step},
                               {"state", manifest.state}, {"tensors", std::move(tensors)}, {"files", std::move(files)}};
  return json.dump(1) + "\n";
}

Manifest ParseManifest(std::string_view text, const std::string& where) {
  nlohmann::json json = ParseJsonObject(text, where);
  if (const std::string& format = TextMember(json, "format", where); format != kFormat) {
    FailUser("{}: field 'format': expected '{}', got '{}'", where, kFormat, format);
  }
  if (const int64_t version = CountMember(json, "version", where); version != kVersion) {
    FailUser("{}: field 'version': this program reads {}, got {}", where, kVersion, version);
  }
  Manifest manifest;
  manifest.step = CountMember(json, "step", where);
  for (const auto& [name, file] : ObjectMember(json, "files", where).items()) {
    CheckPlainFileName(name, where);
    const std::string at = fmt::format("{}: file '{}'", where, name);
    manifest.files[name] = {CountMember(file, "bytes", at), TextMember(file, "xxh3", at)};
  }
  for (const auto& [name, tensor] : ObjectMember(json, "tensors", where).items()) {
    manifest.tensors[name] = ParseTensor(tensor, manifest, fmt::format("{}: tensor '{}'", where, name));
  }
  Member(json, "state", where);
  manifest.state = std::move(json["state"]);
  return manifest;
}

Manifest ReadManifest(const std::filesystem::path& checkpoint) {
  const std::filesystem::path path = checkpoint / "manifest.json";
  Manifest manifest = ParseManifest(ReadFile(path), path.string());
  for (const auto& [name, tensor] : manifest.tensors) {
    if (const auto problem = PartitionProblem(tensor.shape, tensor.boxes)) {
      FailUser("{}: tensor '{}': {}", path.string(), name, *problem);
    }
  }
  for (const auto& [name, file] : manifest.files) CheckFile(checkpoint / name, file.bytes);
  return manifest;
}

}  // namespace trireme
