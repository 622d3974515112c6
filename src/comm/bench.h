#pragma once
// Times of collectives as this back end carries them out: `trireme bench comm`.

#include <string>
#include <string_view>
#include <vector>

#include "base/units.h"
#include "comm/communicator.h"

namespace trireme {

struct CommTiming {
  std::string collective;
  Bytes bytes;  // of the whole tensor: what all_reduce reduces, all_gather gathers, reduce_scatter scatters
  int64_t calls = 0;
  Seconds min, p50, p99;  // of a call, by its slowest rank
  // Bytes a second over the slowest link, by the bytes that an optimal algorithm moves: all_reduce 2 (n-1)/n,
  // reduce_scatter, all_gather and all_to_all (n-1)/n, broadcast and send_recv all of `bytes`; from p50.
  double bus_bytes_per_s = 0;
};

inline constexpr std::string_view kBenchCollectives[] = {"all_reduce", "reduce_scatter", "all_gather",
                                                         "broadcast",  "all_to_all",     "send_recv"};

// Collective over `comm`: fp32 tensors of at least `bytes` (rounded up to what n ranks share), for about `limit` or at
// least 5 calls, after a few that warm up. send_recv: rank 0 to 1 and back, half of the time. The same result on every
// rank.
CommTiming TimeCollective(Communicator& comm, std::string_view collective, Bytes bytes, Seconds limit);

}  // namespace trireme
