#include "data/pack.h"

#include <cerrno>
#include <cstring>
#include <fstream>

#include "base/error.h"
#include "data/token_file.h"

namespace trireme {

void PackText(const std::vector<std::filesystem::path>& inputs, const std::string& prefix) {
  constexpr int64_t kBytesVocab = 256;
  // All inputs are looked at before anything is written.
  for (const std::filesystem::path& path : inputs) {
    if (!std::filesystem::is_regular_file(path))
      FailUser("{}: not a readable file; give text files that exist", path.string());
  }
  TokenFileWriter writer(prefix, kBytesVocab);
  std::string block(1 << 20, '\0');
  std::vector<int32_t> tokens;
  for (const std::filesystem::path& path : inputs) {
    std::ifstream in(path, std::ios::binary);
    if (!in) FailUser("{}: cannot be opened: {}", path.string(), std::strerror(errno));
    while (in.read(block.data(), static_cast<std::streamsize>(block.size())) || in.gcount() > 0) {
      tokens.clear();
      for (std::streamsize i = 0; i < in.gcount(); ++i)
        tokens.push_back(static_cast<unsigned char>(block[static_cast<size_t>(i)]));
      writer.Append(tokens);
    }
    writer.EndDocument();
  }
  writer.Finish();
}

std::string TokenFileInfo(const std::string& prefix) {
  const TokenFile file(prefix);
  return fmt::format("{}\n  tokens     {:>14}\n  documents  {:>14}\n  bytes each {:>14}\n  largest id {:>14}\n", prefix,
                     file.num_tokens(), file.num_documents(), file.token_bytes(), file.MaxToken());
}

}  // namespace trireme
