#include "comm/bench.h"

#include <ATen/ops/ones.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <chrono>
#include <functional>

namespace trireme {
namespace {

double SecondsOf(const std::function<void()>& call) {
  const auto begin = std::chrono::steady_clock::now();
  call();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

}  // namespace

CommTiming TimeCollective(Communicator& comm, std::string_view collective, Bytes bytes, Seconds limit) {
  const int n = comm.size();
  const int64_t piece = std::max<int64_t>(1, (bytes.value / 4 + n - 1) / n), size = piece * n;
  const at::Tensor whole = at::zeros({n, piece}), part = at::ones({piece}), other = at::zeros({n, piece});
  const std::vector<int64_t> rows(static_cast<size_t>(n), 1);
  const double share = static_cast<double>(n - 1) / n;
  std::function<void()> call;
  double moved = 1;
  if (collective == "all_reduce") {
    call = [&] { comm.AllReduce(whole)->Wait(); };
    moved = 2 * share;
  } else if (collective == "reduce_scatter") {
    call = [&] { comm.ReduceScatter(part, whole)->Wait(); };
    moved = share;
  } else if (collective == "all_gather") {
    call = [&] { comm.AllGather(whole, part)->Wait(); };
    moved = share;
  } else if (collective == "broadcast") {
    call = [&] { comm.Broadcast(whole, 0)->Wait(); };
  } else if (collective == "all_to_all") {
    call = [&] { comm.AllToAll(other, whole, rows, rows)->Wait(); };
    moved = share;
  } else if (collective == "send_recv") {
    call = [&] {
      if (comm.rank() > 1 || n == 1) return;
      const int peer = 1 - comm.rank();
      if (comm.rank() == 0) {
        comm.Send(whole, peer)->Wait();
        comm.Recv(whole, peer)->Wait();
      } else {
        comm.Recv(whole, peer)->Wait();
        comm.Send(whole, peer)->Wait();
      }
    };
  } else {
    FailUser(
        "--collective: '{}' is not one of all_reduce, reduce_scatter, all_gather, broadcast, all_to_all, send_recv",
        collective);
  }
  for (int i = 0; i < 3; ++i) call();
  at::Tensor calls = at::zeros({1}, at::kLong);
  *calls.mutable_data_ptr<int64_t>() =
      std::clamp<int64_t>(static_cast<int64_t>(limit.value / std::max(1e-7, SecondsOf(call))), 5, 20000);
  comm.Broadcast(calls, 0)->Wait();
  const int64_t count = *calls.const_data_ptr<int64_t>();
  at::Tensor times = at::zeros({count}, at::kDouble);
  double* t = times.mutable_data_ptr<double>();
  comm.Barrier()->Wait();
  for (int64_t i = 0; i < count; ++i) t[i] = SecondsOf(call);
  comm.AllReduce(times, ReduceOp::kMax)->Wait();
  if (collective == "send_recv") {
    for (int64_t i = 0; i < count; ++i) t[i] /= 2;
  }
  std::sort(t, t + count);
  CommTiming timing{.collective = std::string(collective), .bytes = Bytes(size * 4), .calls = count};
  timing.min = Seconds(t[0]);
  timing.p50 = Seconds(t[count / 2]);
  timing.p99 = Seconds(t[std::min(count - 1, count * 99 / 100)]);
  timing.bus_bytes_per_s = n == 1 ? 0 : moved * static_cast<double>(size * 4) / timing.p50.value;
  return timing;
}

}  // namespace trireme
