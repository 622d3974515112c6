#include "train/audit.h"

#include <ATen/ops/empty.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <sstream>

#include "base/file.h"
#include "base/hash.h"
#include "base/philox.h"
#include "checkpoint/safetensors.h"

namespace trireme {
namespace {

std::span<const std::byte> BytesOf(const at::Tensor& tensor) {
  return {static_cast<const std::byte*>(tensor.const_data_ptr()), tensor.nbytes()};
}

// Norm, and a sum with pseudo-random signs: two tensors whose projections differ by d differ by about d in norm.
nlohmann::ordered_json Statistics(const at::Tensor& tensor) {
  const at::Tensor wide = tensor.to(at::kDouble).contiguous();
  const double* x = wide.const_data_ptr<double>();
  const Philox random(0, "audit signs");
  double squares = 0, projection = 0;
  uint64_t signs = 0;
  for (int64_t i = 0; i < wide.numel(); ++i) {
    if (i % 64 == 0) signs = random.Bits64(static_cast<uint64_t>(i / 64));
    squares += x[i] * x[i];
    projection += (signs >> (i % 64) & 1) != 0 ? x[i] : -x[i];
  }
  return {{"xxh3", HashText(Hash64(BytesOf(tensor)))}, {"norm", std::sqrt(squares)}, {"projection", projection}};
}

at::Tensor BoxOf(const at::Tensor& whole, const Rectangle& box) {
  at::Tensor view = whole;
  for (size_t d = 0; d < box.size.size(); ++d) view = view.narrow(static_cast<int64_t>(d), box.offset[d], box.size[d]);
  return view;
}

}  // namespace

Auditor::Auditor(Session& session, const LogOptions& options, const std::filesystem::path& run_dir, int64_t keep_until)
    : session_(session), options_(options), run_dir_(run_dir) {
  const std::filesystem::path path = run_dir / "audit.jsonl";
  if (session.comms().world().rank() != 0 || !std::filesystem::exists(path)) return;
  std::istringstream in(ReadFile(path));
  std::string kept;
  for (std::string line; std::getline(in, line);) {
    const nlohmann::json row = nlohmann::json::parse(line, nullptr, false);
    if (!row.is_discarded() && row.value("step", keep_until + 1) <= keep_until) kept += line + '\n';
  }
  WriteFileAtomically(path, kept);
}

bool Auditor::Dumps(int64_t step) const {
  return std::ranges::find(options_.dump.steps, step) != options_.dump.steps.end();
}

at::Tensor Auditor::GatherWhole(const LocalParam& mine, bool gradient) {
  const Mesh& mesh = session_.mesh();
  Communicator& world = session_.comms().world();
  const std::string& name = mine.spec.name;
  const int tp = mesh.Size(Axis::kTp);
  at::Tensor whole;
  if (world.rank() == 0) whole = at::empty(mine.spec.shape, session_.params().values().options());
  for (int t = 0; t < tp; ++t) {
    const LocalParam piece = ShardingTable({mine.spec}, tp, t).params()[0];
    if (!piece.counts || NumElements(piece.rectangle.size) == 0) continue;
    Coordinate owner;  // the first replica of each piece speaks for it
    owner[Axis::kTp] = t;
    const int from = mesh.RankOf(owner);
    at::Tensor box;
    if (world.rank() == from) {
      const at::Tensor local = gradient ? session_.params().Grad(name) : session_.params().Value(name);
      box = BoxOf(local, {Shape(piece.rectangle.size.size(), 0), piece.rectangle.size}).contiguous();
    }
    if (from != 0 && world.rank() == from) world.Send(box, 0)->Wait();
    if (world.rank() != 0) continue;
    if (from != 0) {
      box = at::empty(piece.rectangle.size, whole.options());
      world.Recv(box, from)->Wait();
    }
    BoxOf(whole, piece.rectangle).copy_(box);
  }
  return whole;
}

nlohmann::ordered_json Auditor::Examine(int64_t step, bool gradients, bool dump) {
  nlohmann::ordered_json statistics = nlohmann::ordered_json::object();
  std::vector<std::pair<std::string, at::Tensor>> tensors;
  const bool first = session_.comms().world().rank() == 0;
  for (const LocalParam& param : session_.params().table().params()) {
    const at::Tensor whole = GatherWhole(param, gradients);
    if (!first) continue;
    statistics[param.spec.name] = Statistics(whole);
    if (dump) tensors.emplace_back(param.spec.name, whole);
  }
  if (first && dump) {
    const std::filesystem::path folder = run_dir_ / "dumps" / fmt::format("step-{}", step);
    std::filesystem::create_directories(folder);
    WriteSafetensors(folder / (gradients ? "gradients.safetensors" : "parameters.safetensors"), tensors,
                     {{"format", "pt"}});
  }
  return statistics;
}

void Auditor::Gradients(int64_t step) {
  row_ = {{"step", step}};
  row_["gradients"] = Examine(step, true, Dumps(step) && options_.dump.gradients);
}

void Auditor::Finish(int64_t step, const StepResult& result) {
  row_["data"] = HashText(session_.DataHash(step));
  row_["loss"] = result.loss;
  row_["grad_norm"] = result.grad_norm;
  row_["parameters"] = Examine(step, false, Dumps(step) && options_.dump.parameters);
  if (session_.comms().world().rank() != 0) return;
  std::ofstream out(run_dir_ / "audit.jsonl", std::ios::app);
  out << row_.dump() << '\n';
  if (!out.flush()) Fail("cannot write {}/audit.jsonl", run_dir_.string());
}

}  // namespace trireme
