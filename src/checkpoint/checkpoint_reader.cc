#include <c10/core/GradMode.h>

#include <mutex>

#include "base/error.h"
#include "base/hash.h"
#include "checkpoint/checkpoint.h"
#include "checkpoint/manifest.h"
#include "checkpoint/read_box.h"
#include "checkpoint/safetensors.h"

namespace trireme {

struct CheckpointReader::Impl {
  std::filesystem::path folder;
  Manifest manifest;
  // Opened when first needed: a rank of many reads few of the files.
  std::mutex mutex;
  std::map<std::string, std::unique_ptr<SafetensorsFile>> open;

  const SafetensorsFile& File(const std::string& name) {
    const std::lock_guard lock(mutex);
    std::unique_ptr<SafetensorsFile>& file = open[name];
    if (!file) file = std::make_unique<SafetensorsFile>(folder / name);
    return *file;
  }

  const StoredTensor& Find(const std::string& name) const {
    const auto it = manifest.tensors.find(name);
    if (it == manifest.tensors.end()) {
      FailUser("{}: tensor '{}' is missing (the checkpoint holds {} tensors)", (folder / "manifest.json").string(),
               name, manifest.tensors.size());
    }
    return it->second;
  }
};

CheckpointReader::CheckpointReader(const std::filesystem::path& checkpoint) : impl_(std::make_unique<Impl>()) {
  impl_->folder = checkpoint;
  impl_->manifest = ReadManifest(checkpoint);
}
CheckpointReader::~CheckpointReader() = default;

int64_t CheckpointReader::step() const { return impl_->manifest.step; }
const nlohmann::json& CheckpointReader::state() const { return impl_->manifest.state; }

std::vector<std::string> CheckpointReader::Names() const {
  std::vector<std::string> names;
  for (const auto& [name, tensor] : impl_->manifest.tensors) names.push_back(name);
  return names;
}

bool CheckpointReader::Has(const std::string& name) const { return impl_->manifest.tensors.contains(name); }
Shape CheckpointReader::ShapeOf(const std::string& name) const { return impl_->Find(name).shape; }

void CheckpointReader::Read(const std::string& name, const Rectangle& rectangle, const at::Tensor& out) const {
  const c10::NoGradGuard no_grad;
  const StoredTensor& tensor = impl_->Find(name);
  CheckRead(impl_->folder, name, tensor.shape, rectangle, out);
  // The boxes partition the tensor (ReadManifest), so their intersections fill `out`.
  for (const StoredBox& box : tensor.boxes) {
    const Rectangle common = Intersect(rectangle, box.rectangle);
    if (NumElements(common.size) == 0) continue;
    const SafetensorsFile& file = impl_->File(box.file);
    const SafetensorsFile::Entry& entry = file.Find(box.key);
    if (entry.dtype != tensor.dtype || entry.shape != box.rectangle.size) {
      FailUser("{}: tensor '{}': expected {} {}, as the manifest says, found {} {}", file.path().string(), box.key,
               tensor.dtype, ShapeText(box.rectangle.size), entry.dtype, ShapeText(entry.shape));
    }
    Window(out, rectangle, common).copy_(Window(file.View(box.key), box.rectangle, common));
  }
}

void CheckpointReader::VerifyChecksums() const {
  for (const auto& [name, expected] : impl_->manifest.files) {
    const MappedFile file(impl_->folder / name);
    const std::string found = HashText(Hash64(file.bytes()));
    if (found != expected.xxh3) {
      FailUser(
          "{}: expected checksum {}, found {}: the file has changed since it was written; use an earlier "
          "checkpoint",
          file.path().string(), expected.xxh3, found);
    }
  }
}

}  // namespace trireme
