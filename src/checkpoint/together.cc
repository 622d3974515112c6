#include "checkpoint/together.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <cstring>
#include <optional>

namespace trireme {

void DoTogether(Communicator& world, const std::string& what, const std::function<void()>& body,
                const std::function<void()>& undo) {
  std::optional<std::string> reason;
  try {
    body();
  } catch (const std::exception& error) {
    reason = error.what();
  }
  // The larger the flag, the lower the rank; 0: nobody failed.
  at::Tensor flag = at::full({1}, reason ? world.size() - world.rank() : 0, at::TensorOptions(at::kLong));
  world.AllReduce(flag, ReduceOp::kMax)->Wait();
  const auto highest = static_cast<int>(flag.item<int64_t>());
  if (highest == 0) return;

  undo();
  const int root = world.size() - highest;
  at::Tensor length = at::full({1}, reason ? static_cast<int64_t>(reason->size()) : 0, at::TensorOptions(at::kLong));
  world.Broadcast(length, root)->Wait();
  std::string text(static_cast<size_t>(length.item<int64_t>()), ' ');
  if (!text.empty()) {
    at::Tensor bytes = at::empty({static_cast<int64_t>(text.size())}, at::TensorOptions(at::kByte));
    if (world.rank() == root) std::memcpy(bytes.mutable_data_ptr(), reason->data(), reason->size());
    world.Broadcast(bytes, root)->Wait();
    std::memcpy(text.data(), bytes.const_data_ptr(), text.size());
  }
  Fail("{}: rank {}: {}", what, world.ranks()[static_cast<size_t>(root)], text);
}

std::vector<std::string> GatherTexts(Communicator& world, const std::string& text) {
  const int64_t ranks = world.size();
  at::Tensor sizes = at::empty({ranks}, at::TensorOptions(at::kLong));
  world.AllGather(sizes, at::full({1}, static_cast<int64_t>(text.size()), at::TensorOptions(at::kLong)))->Wait();
  const int64_t longest = std::max<int64_t>(1, sizes.max().item<int64_t>());
  // Equal pieces are all an all-gather can carry.
  at::Tensor mine = at::zeros({longest}, at::TensorOptions(at::kByte));
  std::memcpy(mine.mutable_data_ptr(), text.data(), text.size());
  at::Tensor all = at::empty({ranks * longest}, at::TensorOptions(at::kByte));
  world.AllGather(all, mine)->Wait();
  std::vector<std::string> texts;
  for (int64_t rank = 0; rank < ranks; ++rank) {
    texts.emplace_back(static_cast<const char*>(all.const_data_ptr()) + rank * longest,
                       static_cast<size_t>(sizes[rank].item<int64_t>()));
  }
  return texts;
}

}  // namespace trireme
