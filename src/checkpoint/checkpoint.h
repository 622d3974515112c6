#pragma once
// Checkpoints: folders step-00000200/ with one safetensors file per rank that has something to save, and a
// manifest.json (format version, step, state, every tensor's global shape and where its boxes lie, every file's size
// and checksum). Stored by name, global shape and offsets, so that any layout can read them. A folder appears under its
// name only when it is complete and durable (written as step-N.tmp, synced, renamed); `latest` is a symbolic link
// replaced by rename after that, and rotation removes a folder only when nothing points at it: a kill at any moment
// leaves a usable newest checkpoint. See docs/checkpoint-format.md.

#include <nlohmann/json.hpp>

#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "checkpoint/tensor_source.h"
#include "comm/communicator.h"

namespace trireme {

// A box of a named global tensor to save: `local` has shape rectangle.size (any strides). Empty boxes may be passed.
struct TensorPiece {
  std::string name;
  Shape global_shape;
  Rectangle rectangle;
  at::Tensor local;
};

// Collective over world: all ranks pass their pieces; the boxes of a name must partition it (checked: Error naming the
// tensor). `state` (rank 0's counts) is free JSON. Writes directory/step-N, moves `latest`, then removes all but the
// newest `keep` (0: keeps all). When one rank fails to write (disk full), all ranks throw, the partial folder is
// removed and earlier checkpoints stay.
void SaveCheckpoint(const std::filesystem::path& directory, int64_t step, const std::vector<TensorPiece>& pieces,
                    const nlohmann::json& state, int64_t keep, Communicator& world);

// The newest complete checkpoint of a folder, or none. Partial folders are skipped.
std::optional<std::filesystem::path> LatestCheckpoint(const std::filesystem::path& directory);

class CheckpointReader : public TensorSource {
 public:
  // Opens step-N/ and checks the manifest against file sizes. UserError names file, expected and found.
  explicit CheckpointReader(const std::filesystem::path& checkpoint);
  ~CheckpointReader() override;

  int64_t step() const;
  const nlohmann::json& state() const;

  std::vector<std::string> Names() const override;
  bool Has(const std::string& name) const override;
  Shape ShapeOf(const std::string& name) const override;
  void Read(const std::string& name, const Rectangle& rectangle, const at::Tensor& out) const override;

  // Reads every file and compares checksums. UserError names the file, expected and found checksum.
  void VerifyChecksums() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace trireme
