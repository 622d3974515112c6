#pragma once
// Text files to a token file.

#include <filesystem>
#include <string>
#include <vector>

namespace trireme {

// Byte tokenizer: every byte is a token; each file becomes one document. Streams: memory does not grow with the files.
// UserError when an input cannot be read.
void PackText(const std::vector<std::filesystem::path>& inputs, const std::string& prefix);

// What is in a token file, for people: tokens, documents, type, largest id.
std::string TokenFileInfo(const std::string& prefix);

}  // namespace trireme
