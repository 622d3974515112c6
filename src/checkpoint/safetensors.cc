#include "checkpoint/safetensors.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/from_blob.h>
#include <c10/core/GradMode.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <nlohmann/json.hpp>
#include <numeric>
#include <string_view>

#include "base/error.h"
#include "base/hash.h"
#include "checkpoint/json_input.h"

namespace trireme {
namespace {

static_assert(std::endian::native == std::endian::little, "safetensors data is little-endian and read in place");

constexpr uint64_t kMaxHeader = 100'000'000;       // bytes, the bound of the format's reference reader
constexpr int64_t kChunkBytes = 16 * 1024 * 1024;  // of a tensor that must be gathered before it is written

struct TypeName {
  at::ScalarType type;
  std::string_view name;
};
constexpr std::array kTypes = {
    TypeName{at::kDouble, "F64"},
    TypeName{at::kFloat, "F32"},
    TypeName{at::kHalf, "F16"},
    TypeName{at::kBFloat16, "BF16"},
    TypeName{at::kFloat8_e4m3fn, "F8_E4M3"},
    TypeName{at::kFloat8_e5m2, "F8_E5M2"},
    TypeName{at::kLong, "I64"},
    TypeName{at::kInt, "I32"},
    TypeName{at::kShort, "I16"},
    TypeName{at::kChar, "I8"},
    TypeName{at::kUInt64, "U64"},
    TypeName{at::kUInt32, "U32"},
    TypeName{at::kUInt16, "U16"},
    TypeName{at::kByte, "U8"},
    TypeName{at::kBool, "BOOL"},
};

// Bytes of a tensor; false when they, or the strides, do not fit into 63 bits.
bool ByteSize(const Shape& shape, size_t item, uint64_t& bytes) {
  int64_t span = static_cast<int64_t>(item);  // as if empty dimensions had one element: bounds the strides
  bool empty = false;
  for (const int64_t size : shape) {
    empty |= size == 0;
    if (__builtin_mul_overflow(span, std::max<int64_t>(size, 1), &span)) return false;
  }
  bytes = empty ? 0 : static_cast<uint64_t>(span);
  return true;
}

SafetensorsFile::Entry ParseEntry(const nlohmann::json& json, uint64_t data_bytes, const std::string& where) {
  SafetensorsFile::Entry entry;
  entry.dtype = TextMember(json, "dtype", where);
  const auto type =
      std::find_if(kTypes.begin(), kTypes.end(), [&](const TypeName& t) { return t.name == entry.dtype; });
  if (type == kTypes.end()) {
    FailUser("{}: dtype '{}' is not known; expected F64, F32, F16, BF16, F8_*, I8 to I64, U8 to U64 or BOOL", where,
             entry.dtype);
  }
  entry.type = type->type;
  entry.shape = ShapeMember(json, "shape", where);
  const Shape offsets = ShapeMember(json, "data_offsets", where);
  if (offsets.size() != 2 || offsets[0] > offsets[1] || static_cast<uint64_t>(offsets[1]) > data_bytes) {
    FailUser("{}: data_offsets {}: expected begin <= end <= {}, the bytes after the header", where, ShapeText(offsets),
             data_bytes);
  }
  entry.begin = static_cast<uint64_t>(offsets[0]);
  entry.end = static_cast<uint64_t>(offsets[1]);
  uint64_t bytes = 0;
  if (!ByteSize(entry.shape, c10::elementSize(entry.type), bytes)) {
    FailUser("{}: shape {} is too large to address", where, ShapeText(entry.shape));
  }
  if (entry.end - entry.begin != bytes) {
    FailUser("{}: data_offsets span {} bytes, but {} {} takes {}", where, entry.end - entry.begin, entry.dtype,
             ShapeText(entry.shape), bytes);
  }
  return entry;
}

// Every byte of the data belongs to exactly one tensor.
void CheckLayout(const std::map<std::string, SafetensorsFile::Entry>& entries, uint64_t data_bytes,
                 const std::string& file) {
  std::vector<const std::pair<const std::string, SafetensorsFile::Entry>*> order;
  for (const auto& item : entries) order.push_back(&item);
  std::sort(order.begin(), order.end(), [](const auto* a, const auto* b) {
    return std::pair(a->second.begin, a->second.end) < std::pair(b->second.begin, b->second.end);
  });
  uint64_t next = 0;
  for (const auto* item : order) {
    if (item->second.begin != next) {
      FailUser("{}: tensor '{}': data begins at byte {}, expected {}: {}", file, item->first, item->second.begin, next,
               item->second.begin < next ? "it overlaps the tensor before it" : "there is a hole before it");
    }
    next = item->second.end;
  }
  if (next != data_bytes) {
    FailUser("{}: the header accounts for {} bytes of data, but {} follow it", file, next, data_bytes);
  }
}

// Bytes go to the file and into the hash while they are in the cache.
class HashingWriter {
 public:
  explicit HashingWriter(const std::filesystem::path& path) : writer_(path) {}
  void Write(std::span<const std::byte> bytes) {
    constexpr size_t kBlock = 1 << 20;
    for (size_t at = 0; at < bytes.size(); at += kBlock) {
      const auto block = bytes.subspan(at, std::min(kBlock, bytes.size() - at));
      hash_.Update(block);
      writer_.Write(block);
    }
    bytes_ += bytes.size();
  }
  WrittenFile Close() {
    writer_.Close();
    return {bytes_, hash_.Value()};
  }

 private:
  FileWriter writer_;
  StreamingHash64 hash_;
  uint64_t bytes_ = 0;
};

void WriteTensor(HashingWriter& out, const at::Tensor& tensor) {
  if (tensor.numel() == 0) return;
  const int64_t bytes = tensor.numel() * static_cast<int64_t>(tensor.element_size());
  if (tensor.device().is_cpu() && tensor.is_contiguous()) {
    out.Write({static_cast<const std::byte*>(tensor.const_data_ptr()), static_cast<size_t>(bytes)});
    return;
  }
  if (bytes > kChunkBytes && tensor.dim() > 0) {
    const int64_t rows = std::max<int64_t>(1, kChunkBytes / (bytes / tensor.size(0)));
    if (tensor.size(0) == 1) return WriteTensor(out, tensor.select(0, 0));
    for (int64_t row = 0; row < tensor.size(0); row += rows) {
      WriteTensor(out, tensor.narrow(0, row, std::min(rows, tensor.size(0) - row)));
    }
    return;
  }
  const at::Tensor whole = tensor.cpu().contiguous();
  out.Write({static_cast<const std::byte*>(whole.const_data_ptr()), static_cast<size_t>(bytes)});
}

}  // namespace

std::string SafetensorsTypeName(at::ScalarType type) {
  for (const TypeName& entry : kTypes) {
    if (entry.type == type) return std::string(entry.name);
  }
  Fail("safetensors has no name for the type {}", c10::toString(type));
}

SafetensorsFile::SafetensorsFile(const std::filesystem::path& path) : file_(path) {
  const auto bytes = file_.bytes();
  const std::string file = path.string();
  uint64_t header_bytes = 0;
  if (bytes.size() < sizeof header_bytes) FailUser("{}: {} bytes are too few for safetensors", file, bytes.size());
  std::memcpy(&header_bytes, bytes.data(), sizeof header_bytes);
  const uint64_t rest = bytes.size() - sizeof header_bytes;
  if (header_bytes > rest || header_bytes > kMaxHeader) {
    FailUser("{}: the header claims {} bytes, but {} follow and {} are the limit: not safetensors, or cut short", file,
             header_bytes, rest, kMaxHeader);
  }
  const std::string_view header(reinterpret_cast<const char*>(bytes.data()) + sizeof header_bytes, header_bytes);
  data_begin_ = sizeof header_bytes + header_bytes;
  const nlohmann::json json = ParseJsonObject(header, file + ": header");
  for (const auto& [name, value] : json.items()) {
    if (name == "__metadata__") {
      if (!value.is_object()) FailUser("{}: __metadata__: expected an object, got {}", file, ValueText(value));
      for (const auto& [key, text] : value.items())
        metadata_[key] = TextMember(value, key.c_str(), file + ": __metadata__");
      continue;
    }
    entries_[name] = ParseEntry(value, rest - header_bytes, fmt::format("{}: tensor '{}'", file, name));
  }
  CheckLayout(entries_, rest - header_bytes, file);
}

const SafetensorsFile::Entry& SafetensorsFile::Find(const std::string& name) const {
  const auto it = entries_.find(name);
  if (it == entries_.end()) {
    FailUser("{}: tensor '{}' is missing (the file holds {} tensors)", path().string(), name, entries_.size());
  }
  return it->second;
}

at::Tensor SafetensorsFile::View(const std::string& name) const {
  const Entry& entry = Find(name);
  if (entry.begin == entry.end) return at::empty(entry.shape, entry.type);
  const std::byte* data = file_.bytes().data() + data_begin_ + entry.begin;
  if (reinterpret_cast<uintptr_t>(data) % c10::elementSize(entry.type) == 0) {
    return at::from_blob(const_cast<std::byte*>(data), entry.shape, at::TensorOptions(entry.type));
  }
  at::Tensor copy = at::empty(entry.shape, entry.type);
  std::memcpy(copy.mutable_data_ptr(), data, entry.end - entry.begin);
  return copy;
}

WrittenFile WriteSafetensors(const std::filesystem::path& path,
                             const std::vector<std::pair<std::string, at::Tensor>>& tensors,
                             const std::map<std::string, std::string>& metadata) {
  const c10::NoGradGuard no_grad;
  std::vector<size_t> order(tensors.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) {
    return tensors[a].second.element_size() > tensors[b].second.element_size();
  });

  nlohmann::json header = nlohmann::json::object();
  if (!metadata.empty()) header["__metadata__"] = metadata;
  uint64_t offset = 0;
  for (const size_t i : order) {
    const auto& [name, tensor] = tensors[i];
    TRIREME_CHECK(name != "__metadata__" && !header.contains(name),
                  "{}: tensor '{}' stands twice, or has a reserved name", path.string(), name);
    const uint64_t end = offset + static_cast<uint64_t>(tensor.numel()) * tensor.element_size();
    header[name] = {{"dtype", SafetensorsTypeName(tensor.scalar_type())},
                    {"shape", tensor.sizes().vec()},
                    {"data_offsets", {offset, end}}};
    offset = end;
  }
  std::string text = header.dump();
  text.resize((text.size() + 7) / 8 * 8, ' ');
  if (text.size() > kMaxHeader) {
    Fail("{}: {} tensors need a header of {} bytes; readers stop at {}", path.string(), tensors.size(), text.size(),
         kMaxHeader);
  }

  HashingWriter out(path);
  const uint64_t header_bytes = text.size();
  out.Write(std::as_bytes(std::span(&header_bytes, 1)));
  out.Write(std::as_bytes(std::span(text.data(), text.size())));
  for (const size_t i : order) WriteTensor(out, tensors[i].second);
  return out.Close();
}

}  // namespace trireme
