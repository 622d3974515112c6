#include <c10/core/GradMode.h>

#include <set>

#include "base/error.h"
#include "base/file.h"
#include "base/hash.h"
#include "checkpoint/checkpoint.h"
#include "checkpoint/folder.h"
#include "checkpoint/manifest.h"
#include "checkpoint/safetensors.h"
#include "checkpoint/together.h"

namespace trireme {
namespace {

std::string RankFileName(int rank) { return fmt::format("rank-{:05}.safetensors", rank); }

void CheckPiece(const TensorPiece& piece) {
  TRIREME_CHECK(piece.local.defined(), "tensor '{}': its box has no data", piece.name);
  if (piece.local.sizes() != at::IntArrayRef(piece.rectangle.size)) {
    Fail("tensor '{}': its box has size {}, but the data has shape {}", piece.name, ShapeText(piece.rectangle.size),
         ShapeText(piece.local.sizes().vec()));
  }
  // Where an empty box lies means nothing.
  if (piece.local.numel() == 0 && piece.rectangle.size.size() == piece.global_shape.size()) return;
  if (const auto problem = BoundsProblem(piece.global_shape, piece.rectangle)) {
    Fail("tensor '{}': {}", piece.name, *problem);
  }
}

// Writes this rank's file, unless it has nothing to save, and returns a manifest of it alone: other ranks' boxes of the
// same tensors are missing in there. An empty box only tells that its tensor exists.
Manifest WritePieces(const std::filesystem::path& folder, int rank, const std::vector<TensorPiece>& pieces) {
  Manifest manifest;
  std::vector<std::pair<std::string, at::Tensor>> tensors;
  nlohmann::json saved_offsets = nlohmann::json::object();
  const std::string file = RankFileName(rank);
  std::set<std::string> names, keys;
  for (const TensorPiece& piece : pieces) names.insert(piece.name);
  for (const TensorPiece& piece : pieces) {
    CheckPiece(piece);
    const std::string dtype = SafetensorsTypeName(piece.local.scalar_type());
    StoredTensor& stored =
        manifest.tensors.try_emplace(piece.name, StoredTensor{dtype, piece.global_shape, {}}).first->second;
    if (stored.dtype != dtype || stored.shape != piece.global_shape) {
      Fail("tensor '{}': two boxes disagree: {} {} and {} {}", piece.name, stored.dtype, ShapeText(stored.shape), dtype,
           ShapeText(piece.global_shape));
    }
    if (piece.local.numel() == 0) continue;
    std::string key = piece.name;
    for (int box = 1; keys.contains(key) || (key != piece.name && names.contains(key)); ++box) {
      key = fmt::format("{}#{}", piece.name, box);
    }
    keys.insert(key);
    stored.boxes.push_back({file, key, piece.rectangle});
    saved_offsets[key] = {{"saved_offsets", piece.rectangle.offset}};
    tensors.emplace_back(key, piece.local);
  }
  if (tensors.empty()) return manifest;
  const WrittenFile written = WriteSafetensors(
      folder / file, tensors, {{"DCP_SHARDING_INFO", saved_offsets.dump()}, {"DCP_VERSION", "1.0"}, {"format", "pt"}});
  manifest.files[file] = {static_cast<int64_t>(written.bytes), HashText(written.xxh3)};
  return manifest;
}

// Joins what the ranks wrote; throws Error naming the tensor that they do not partition.
Manifest Join(const std::vector<Manifest>& ranks) {
  Manifest whole;
  for (size_t rank = 0; rank < ranks.size(); ++rank) {
    whole.files.insert(ranks[rank].files.begin(), ranks[rank].files.end());
    for (const auto& [name, tensor] : ranks[rank].tensors) {
      StoredTensor& stored =
          whole.tensors.try_emplace(name, StoredTensor{tensor.dtype, tensor.shape, {}}).first->second;
      if (stored.dtype != tensor.dtype || stored.shape != tensor.shape) {
        Fail("tensor '{}': rank {} has {} {}, a rank before it has {} {}", name, rank, tensor.dtype,
             ShapeText(tensor.shape), stored.dtype, ShapeText(stored.shape));
      }
      stored.boxes.insert(stored.boxes.end(), tensor.boxes.begin(), tensor.boxes.end());
    }
  }
  for (const auto& [name, tensor] : whole.tensors) {
    if (const auto problem = PartitionProblem(tensor.shape, tensor.boxes)) Fail("tensor '{}': {}", name, *problem);
  }
  return whole;
}

}  // namespace

void SaveCheckpoint(const std::filesystem::path& directory, int64_t step, const std::vector<TensorPiece>& pieces,
                    const nlohmann::json& state, int64_t keep, Communicator& world) {
  const c10::NoGradGuard no_grad;
  const bool first = world.rank() == 0;
  const std::filesystem::path partial = directory / (StepFolderName(step) + ".tmp");
  const std::string what = fmt::format("checkpoint of step {} in {}", step, directory.string());
  const auto undo = [&] {
    std::error_code ignored;  // what stays is skipped by readers and removed by the next save
    if (first) std::filesystem::remove_all(partial, ignored);
  };
  const auto together = [&](const std::function<void()>& body) { DoTogether(world, what, body, undo); };

  together([&] {
    TRIREME_CHECK(step >= 0 && keep >= 0, "step {} and keep {} must not be negative", step, keep);
    if (first) MakePartialFolder(directory, step);
  });
  std::string mine;
  together([&] { mine = ManifestText(WritePieces(partial, world.rank(), pieces)); });
  const std::vector<std::string> texts = GatherTexts(world, mine);
  together([&] {
    if (!first) return;
    std::vector<Manifest> ranks;
    for (const std::string& text : texts) ranks.push_back(ParseManifest(text, "a rank's manifest"));
    Manifest manifest = Join(ranks);
    manifest.step = step;
    manifest.state = state;
    FileWriter writer(partial / "manifest.json");
    writer.Write(ManifestText(manifest));
    writer.Close();
    PublishFolder(directory, step, keep);
  });
}

}  // namespace trireme
