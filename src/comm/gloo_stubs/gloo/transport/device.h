#pragma once
// See gloo/context.h.

namespace gloo::transport {

class Device;

struct UnboundBuffer {
  virtual ~UnboundBuffer();
};

}  // namespace gloo::transport
