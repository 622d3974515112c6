#pragma once
// The safetensors file format: u64 little-endian header length, header JSON {name: {dtype, shape, data_offsets}} with
// an optional __metadata__ of texts, then the data, row-major, without holes.

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "base/file.h"
#include "sharding/param_spec.h"

namespace trireme {

// "F32" for float; throws Error when the format has no name for the type.
std::string SafetensorsTypeName(at::ScalarType type);

// A file mapped for reading. Everything in its header is checked on opening: UserError names file and tensor.
class SafetensorsFile {
 public:
  struct Entry {
    std::string dtype;
    at::ScalarType type;
    Shape shape;
    uint64_t begin = 0, end = 0;  // bytes, counted from the end of the header
  };

  explicit SafetensorsFile(const std::filesystem::path& path);

  const std::filesystem::path& path() const { return file_.path(); }
  const std::map<std::string, Entry>& entries() const { return entries_; }
  const std::map<std::string, std::string>& metadata() const { return metadata_; }
  bool Has(const std::string& name) const { return entries_.contains(name); }
  const Entry& Find(const std::string& name) const;  // UserError naming file and tensor
  // Read-only view of the mapped bytes (a copy where the file does not align them): must not outlive this object.
  at::Tensor View(const std::string& name) const;

 private:
  MappedFile file_;
  std::map<std::string, Entry> entries_;
  std::map<std::string, std::string> metadata_;
  uint64_t data_begin_ = 0;
};

struct WrittenFile {
  uint64_t bytes = 0;
  uint64_t xxh3 = 0;  // of the whole file
};

// Writes the tensors (any strides, any device) piece by piece, hashing as it goes, and makes the file durable. The
// widest types come first and the header is padded to 8 bytes, so that every tensor is aligned. Throws Error with path
// and errno.
WrittenFile WriteSafetensors(const std::filesystem::path& path,
                             const std::vector<std::pair<std::string, at::Tensor>>& tensors,
                             const std::map<std::string, std::string>& metadata);

}  // namespace trireme
