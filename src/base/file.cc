#include "base/file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <fstream>
#include <sstream>
#include <utility>

#include "base/error.h"

namespace trireme {
namespace {

[[noreturn]] void FailErrno(const char* what, const std::filesystem::path& path) {
  const int code = errno;
  Fail("{} {}: {} (errno {})", what, path.string(), std::strerror(code), code);
}

}  // namespace

MappedFile::MappedFile(const std::filesystem::path& path) : path_(path) {
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) FailUser("cannot open {}: {}", path.string(), std::strerror(errno));
  struct stat info {};
  if (::fstat(fd, &info) != 0 || !S_ISREG(info.st_mode)) {
    ::close(fd);
    FailUser("cannot read {}: not a regular file", path.string());
  }
  size_ = static_cast<size_t>(info.st_size);
  if (size_ > 0) {
    void* at = ::mmap(nullptr, size_, PROT_READ, MAP_SHARED, fd, 0);
    const int code = errno;
    ::close(fd);
    if (at == MAP_FAILED) FailUser("cannot map {} ({} bytes): {}", path.string(), size_, std::strerror(code));
    data_ = static_cast<const std::byte*>(at);
  } else {
    ::close(fd);
  }
}

MappedFile::MappedFile(MappedFile&& other) noexcept
    : path_(std::move(other.path_)), data_(std::exchange(other.data_, nullptr)), size_(std::exchange(other.size_, 0)) {}

MappedFile::~MappedFile() {
  if (data_ != nullptr) ::munmap(const_cast<std::byte*>(data_), size_);
}

std::string ReadFile(const std::filesystem::path& path) {
  std::error_code ignored;
  std::ifstream in(path, std::ios::binary);
  if (!in || std::filesystem::is_directory(path, ignored)) {
    FailUser("cannot read {}: {}", path.string(), in ? "it is a directory" : std::strerror(errno));
  }
  std::ostringstream out;
  out << in.rdbuf();
  return std::move(out).str();
}

FileWriter::FileWriter(const std::filesystem::path& path) : path_(path) {
  fd_ = ::open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
  if (fd_ < 0) FailErrno("cannot create", path);
}

FileWriter::~FileWriter() {
  if (fd_ >= 0) ::close(fd_);
}

void FileWriter::Write(std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    const ssize_t n = ::write(fd_, bytes.data(), bytes.size());
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) FailErrno("cannot write", path_);
    bytes = bytes.subspan(static_cast<size_t>(n));
  }
}

void FileWriter::Write(std::string_view text) { Write(std::as_bytes(std::span(text.data(), text.size()))); }

void FileWriter::WriteAt(uint64_t offset, std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    const ssize_t n = ::pwrite(fd_, bytes.data(), bytes.size(), static_cast<off_t>(offset));
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) FailErrno("cannot write", path_);
    bytes = bytes.subspan(static_cast<size_t>(n));
    offset += static_cast<uint64_t>(n);
  }
}

void FileWriter::Close() {
  if (::fsync(fd_) != 0) FailErrno("cannot sync", path_);
  if (::close(std::exchange(fd_, -1)) != 0) FailErrno("cannot close", path_);
}

void WriteFileAtomically(const std::filesystem::path& path, std::string_view text) {
  std::filesystem::path temporary = path;
  temporary += ".tmp";
  FileWriter writer(temporary);
  writer.Write(text);
  writer.Close();
  if (::rename(temporary.c_str(), path.c_str()) != 0) FailErrno("cannot rename to", path);
  SyncDirectory(path.parent_path().empty() ? "." : path.parent_path());
}

void SyncDirectory(const std::filesystem::path& directory) {
  const int fd = ::open(directory.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (fd < 0) FailErrno("cannot open directory", directory);
  const int result = ::fsync(fd);
  ::close(fd);
  if (result != 0) FailErrno("cannot sync directory", directory);
}

}  // namespace trireme
