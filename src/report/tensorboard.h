#pragma once
// TensorBoard event files: TFRecord framing (length, masked CRC-32C of the length, data, masked CRC-32C of the data)
// around protobuf messages Event { double wall_time = 1; int64 step = 2; string file_version = 3; Summary summary = 5;
// } with Summary { repeated Value { string tag = 1; float simple_value = 2; } value = 1; }.

#include <cstdint>
#include <filesystem>
#include <memory>
#include <string_view>

namespace trireme {

uint32_t Crc32c(std::string_view bytes);  // Castagnoli, as iSCSI (RFC 3720, B.4)

class TensorBoardWriter {
 public:
  // Creates run_dir/events.out.tfevents.TIME.HOST.
  explicit TensorBoardWriter(const std::filesystem::path& run_dir);
  ~TensorBoardWriter();
  void Scalar(std::string_view tag, int64_t step, double value);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace trireme
