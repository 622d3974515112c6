#pragma once
// Files as the rest of the program needs them: mapped for reading, written whole or not at all. Errors carry path and
// errno. Thread safe as far as different files are concerned.

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>

namespace trireme {

// A read-only memory map of a whole file. Moving keeps the bytes where they are; views end with the object.
class MappedFile {
 public:
  explicit MappedFile(const std::filesystem::path& path);  // throws UserError when it cannot be opened
  ~MappedFile();
  MappedFile(MappedFile&& other) noexcept;
  MappedFile& operator=(MappedFile&&) = delete;

  std::span<const std::byte> bytes() const { return {data_, size_}; }
  const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
  const std::byte* data_ = nullptr;
  size_t size_ = 0;
};

std::string ReadFile(const std::filesystem::path& path);  // throws UserError

// Appends to a file and makes the bytes durable on Close (fsync). Throws Error with path and errno, disk full included.
class FileWriter {
 public:
  explicit FileWriter(const std::filesystem::path& path);  // creates or truncates
  ~FileWriter();                                           // closes without sync if Close was not called
  FileWriter(const FileWriter&) = delete;
  FileWriter& operator=(const FileWriter&) = delete;

  void Write(std::span<const std::byte> bytes);
  void Write(std::string_view text);
  void WriteAt(uint64_t offset, std::span<const std::byte> bytes);
  void Close();
  const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
  int fd_ = -1;
};

// Replaces `path` by `text` in one step: a reader sees the old file or the new one, also after a crash.
void WriteFileAtomically(const std::filesystem::path& path, std::string_view text);

// Makes a rename or creation inside `directory` durable.
void SyncDirectory(const std::filesystem::path& directory);

}  // namespace trireme
