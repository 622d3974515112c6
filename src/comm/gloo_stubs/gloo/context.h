#pragma once
// LibTorch carries Gloo inside but not Gloo's headers. These five declare just what ProcessGroupGloo.hpp mentions, so
// that it compiles; nothing here is ever defined by us, and objects of these types are only made and used inside
// LibTorch. Only gloo_transport.cc sees this folder.

#include <chrono>

namespace gloo {

class Context {
 public:
  void setTimeout(std::chrono::milliseconds timeout);
};

}  // namespace gloo
