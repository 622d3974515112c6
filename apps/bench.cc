#include <fmt/format.h>

#include <cstdio>
#include <memory>
#include <nlohmann/json.hpp>

#include "apps/commands.h"
#include "apps/process.h"
#include "base/error.h"
#include "comm/bench.h"

namespace trireme::apps {
namespace {

struct CommOptions {
  int ranks = 2;
  std::string backend = "auto";
  std::vector<std::string> collectives;
  std::vector<std::string> sizes{"1KiB", "64KiB", "1MiB", "16MiB", "64MiB"};
  double seconds = 0.5;
  bool json = false;
};

Bytes ParseSize(const std::string& text) {
  size_t end = 0;
  double value = 0;
  try {
    value = std::stod(text, &end);
  } catch (const std::exception&) {
    end = 0;
  }
  const std::string unit = text.substr(end);
  const double factor = unit == "KiB"                 ? 1024.0
                        : unit == "MiB"               ? 1048576.0
                        : unit == "GiB"               ? 1073741824.0
                        : unit.empty() || unit == "B" ? 1.0
                                                      : 0.0;
  if (end == 0 || factor == 0 || value * factor < 1 || value * factor > 1e12) {
    FailUser("--size: '{}' is no size; write 4096, 64KiB or 16MiB", text);
  }
  return Bytes(static_cast<int64_t>(value * factor));
}

std::string SizeText(int64_t bytes) {
  if (bytes >= 1048576) return fmt::format("{:.4g} MiB", static_cast<double>(bytes) / 1048576);
  if (bytes >= 1024) return fmt::format("{:.4g} KiB", static_cast<double>(bytes) / 1024);
  return fmt::format("{} B", bytes);
}

std::string TimeText(Seconds t) {
  return t.value >= 1e-3 ? fmt::format("{:.3f} ms", t.value * 1e3) : fmt::format("{:.2f} us", t.value * 1e6);
}

const char* BackEndText(Launch::Kind kind) {
  return kind == Launch::Kind::kThreads ? "thread" : kind == Launch::Kind::kMpi ? "mpi" : "gloo";
}

void RunComm(const CommOptions& options, const Launch& launch, int ranks) {
  std::vector<std::string> collectives = options.collectives;
  if (collectives.empty()) collectives.assign(std::begin(kBenchCollectives), std::end(kBenchCollectives));
  std::vector<Bytes> sizes;
  for (const std::string& size : options.sizes) sizes.push_back(ParseSize(size));
  nlohmann::json rows = nlohmann::json::array();
  const auto body = [&](Communicator& world) {
    const bool lead = world.rank() == 0;
    if (lead && !options.json) {
      fmt::print("{} ranks, {} back end\n\n{:<15} {:>10} {:>7} {:>12} {:>12} {:>12} {:>10}\n", world.size(),
                 BackEndText(launch.kind), "collective", "size", "calls", "min", "p50", "p99", "bus GB/s");
    }
    for (const std::string& collective : collectives) {
      for (const Bytes size : sizes) {
        const CommTiming t = TimeCollective(world, collective, size, Seconds(options.seconds));
        if (!lead) continue;
        if (options.json) {
          rows.push_back({{"collective", t.collective},
                          {"bytes", t.bytes.value},
                          {"calls", t.calls},
                          {"min_s", t.min.value},
                          {"p50_s", t.p50.value},
                          {"p99_s", t.p99.value},
                          {"bus_bytes_per_s", t.bus_bytes_per_s}});
        } else {
          fmt::print("{:<15} {:>10} {:>7} {:>12} {:>12} {:>12} {:>10.3f}\n", t.collective, SizeText(t.bytes.value),
                     t.calls, TimeText(t.min), TimeText(t.p50), TimeText(t.p99), t.bus_bytes_per_s / 1e9);
          std::fflush(stdout);
        }
      }
    }
  };
  RunRanks(
      launch, ranks, std::chrono::duration<double>(600), body, [](int) { return std::string(); }, nullptr);
  if (options.json && launch.rank == 0) {
    fmt::print("{}\n", nlohmann::json{{"ranks", ranks}, {"backend", BackEndText(launch.kind)}, {"rows", rows}}.dump(2));
  }
}

}  // namespace

void AddBench(CLI::App& app, int& exit_code) {
  CLI::App* bench = app.add_subcommand("bench", "measures this machine");
  bench->require_subcommand(1);
  auto options = std::make_shared<CommOptions>();
  CLI::App* comm = bench->add_subcommand("comm", "times of collectives, by size, on a back end");
  comm->add_option("--ranks", options->ranks, "how many, outside a launcher")->check(CLI::Range(1, 4096));
  comm->add_option("--backend", options->backend, "auto, thread, mpi or gloo")
      ->check(CLI::IsMember({"auto", "thread", "mpi", "gloo", "nccl"}));
  comm->add_option("--collective", options->collectives, "all_reduce, ... (default: all)");
  comm->add_option("--size", options->sizes, "of the whole tensor: 1KiB 16MiB ...");
  comm->add_option("--seconds", options->seconds, "for each row")->check(CLI::Range(0.001, 60.0));
  comm->add_flag("--json", options->json, "one JSON document");
  comm->callback([options, &exit_code] {
    const Launch launch = DetectLaunch(options->backend, ReadEnvironment());
    const auto* stop = CatchSignals();
    if (launch.kind == Launch::Kind::kStartGloo || launch.kind == Launch::Kind::kStartMpi) {
      exit_code = StartRanks(launch, options->ranks, OwnCommandLine(), stop);
      return;
    }
    RunComm(*options, launch, launch.processes() ? launch.world : options->ranks);
  });
}

}  // namespace trireme::apps
