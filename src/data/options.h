#pragma once
// Where training samples come from and how many make a step. Sections `data` and `batch` of the configuration.

#include <cstdint>
#include <string>
#include <vector>

namespace trireme {

struct DataOptions {
  std::vector<std::string> text;
  std::string tokens;
  bool synthetic = false;
  std::string tokenizer = "bytes";
  std::string loss_mask;
  bool shuffle = true;
  double validation = 0.05;

  template <class Visitor>
  void VisitFields(Visitor& v) {
    v.Field("text", text, "text files, tokenized and packed into the run's folder before training");
    v.Field("tokens", tokens, "prefix of a Megatron-Core .bin/.idx pair, as `trireme data pack` writes");
    v.Field("synthetic", synthetic, "random tokens: for timing, there is nothing to learn");
    v.Field("tokenizer", tokenizer, "bytes: every byte of the text is a token");
    v.Field("loss_mask", loss_mask, "file of one byte per token: 0 means that token does not count as a label");
    v.Field("shuffle", shuffle, "visit the samples of an epoch in a seeded random order");
    v.Field("validation", validation, "share of the tokens, at the end, that is held out");
  }
};

struct BatchOptions {
  int64_t global = 8;
  int64_t micro = 0;

  template <class Visitor>
  void VisitFields(Visitor& v) {
    v.Field("global", global, "sequences of one optimizer step, over all ranks");
    v.Field("micro", micro, "sequences of one forward pass on one rank; 0 means global / dp (no accumulation)");
  }
};

}  // namespace trireme
