#include "train/trainer.h"

#include <ATen/Parallel.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/tensor.h>
#include <fmt/format.h>
#include <omp.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <thread>

#include "base/error.h"
#include "base/file.h"
#include "checkpoint/checkpoint.h"
#include "checkpoint/hugging_face.h"
#include "mesh/mesh.h"
#include "model_spec/model_spec.h"
#include "report/memory.h"
#include "report/metrics.h"
#include "report/progress.h"
#include "report/rank_log.h"
#include "report/tensorboard.h"
#include "train/audit.h"
#include "train/session.h"
#include "train/training_data.h"

namespace trireme {
namespace {

namespace fs = std::filesystem;
using Clock = std::chrono::steady_clock;

double Since(Clock::time_point begin) { return std::chrono::duration<double>(Clock::now() - begin).count(); }

fs::path CheckpointFolder(const TrainRequest& request) {
  return request.config.checkpoint.dir.empty() ? request.run_dir / "checkpoints"
                                               : fs::path(request.config.checkpoint.dir);
}

std::optional<fs::path> CheckpointToResume(const TrainRequest& request) {
  if (!request.resume) return std::nullopt;
  if (request.resume_from) return request.resume_from;
  return LatestCheckpoint(CheckpointFolder(request));
}

// What only rank 0 writes and shows.
class Reporter {
 public:
  Reporter(const TrainRequest& request, int64_t done)
      : config_(request.config),
        metrics_(request.run_dir, done),
        progress_(stderr, request.terminal, config_.train.steps, done) {
    if (config_.log.tensorboard) events_.emplace(request.run_dir);
  }

  void Step(const StepMetrics& m) {
    metrics_.Append(m);
    progress_.Update(m.step, m.loss, m.tokens_per_s, m.valid_loss);
    if (!events_) return;
    events_->Scalar("loss", m.step, m.loss);
    events_->Scalar("grad_norm", m.step, m.grad_norm);
    events_->Scalar("lr", m.step, m.lr);
    events_->Scalar("tokens_per_s", m.step, m.tokens_per_s);
    if (m.valid_loss) events_->Scalar("valid_loss", m.step, *m.valid_loss);
  }
  void Finish() { progress_.Finish(); }

 private:
  const Config& config_;
  MetricsWriter metrics_;
  ProgressBar progress_;
  std::optional<TensorBoardWriter> events_;
};

// The run as one rank lives it.
class RankLoop {
 public:
  RankLoop(const TrainRequest& request, const TrainingData& data, const std::optional<fs::path>& resume,
           Communicator& world)
      : request_(request),
        config_(request.config),
        world_(world),
        session_(config_, data, world),
        log_(request.run_dir, world.rank(), session_.coordinate().Text()) {
    log_.Write(
        0, fmt::format("joined a world of {}; {} local parameters", world.size(), session_.params().values().numel()));
    if (resume) {
      const CheckpointReader reader(*resume);
      session_.Load(reader);
      done_ = reader.step();
      log_.Write(done_, fmt::format("resumed from {}", resume->string()));
    }
    auditor_.emplace(session_, config_.log, request.run_dir, done_);
    if (world.rank() == 0) reporter_.emplace(request, done_);
  }

  TrainOutcome Run() {
    for (int64_t step = done_ + 1; step <= config_.train.steps; ++step) {
      const auto begin = Clock::now();
      session_.recorder().Reset();
      const bool audited = auditor_->Wants(step);
      const auto on_gradients = audited ? std::function<void()>([&] { auditor_->Gradients(step); }) : nullptr;
      const StepResult result = session_.Step(step, request_.stop != nullptr && request_.stop->load(), on_gradients);
      done_ = step;
      if (!result.updated)
        log_.Write(step, result.tokens == 0 ? "no valid label: no update" : "gradient not finite: update skipped");
      const double step_s = Since(begin);
      const CommCount dp = session_.recorder().Total("dp"),
                      tp = session_.recorder().Total("tp");  // before validation talks
      const bool last = step == config_.train.steps;
      if (audited) auditor_->Finish(step, result);
      std::optional<double> valid_loss;
      if (session_.HasValidation() &&
          (last || (config_.train.eval_every > 0 && step % config_.train.eval_every == 0))) {
        valid_loss = session_.ValidationLoss();
      }
      if (step % config_.log.every == 0 || last || valid_loss) Log(step, result, step_s, dp, tp, valid_loss);
      const bool due = config_.checkpoint.every > 0 && step % config_.checkpoint.every == 0;
      if (config_.checkpoint.every >= 0 && (due || last || result.stop)) Save(step);
      if (result.stop && !last) {
        log_.Write(step, "stopped by a signal");
        if (reporter_) reporter_->Finish();
        return TrainOutcome::kInterrupted;
      }
    }
    if (reporter_) reporter_->Finish();
    return TrainOutcome::kDone;
  }

 private:
  void Log(int64_t step, const StepResult& result, double step_s, const CommCount& dp, const CommCount& tp,
           std::optional<double> valid_loss) {
    // The busiest rank of each figure.
    at::Tensor worst = at::tensor({step_s, static_cast<double>(dp.bytes.value), static_cast<double>(tp.bytes.value),
                                   dp.waited.value, tp.waited.value, static_cast<double>(session_.PeakBytes().value)},
                                  at::kDouble);
    world_.AllReduce(worst, ReduceOp::kMax)->Wait();
    int64_t resident = PeakResidentBytes().value;
    if (request_.launch.processes()) {  // of rank 0's host: all its processes
      const bool with_rank_zero = request_.launch.rank == request_.launch.local_rank;
      const at::Tensor sum = at::tensor({with_rank_zero ? resident : 0}, at::kLong);
      world_.AllReduce(sum)->Wait();
      resident = *sum.const_data_ptr<int64_t>();
    }
    if (!reporter_) return;
    const double* w = worst.const_data_ptr<double>();
    StepMetrics m;
    m.step = step;
    m.loss = result.loss;
    m.grad_norm = result.grad_norm;
    m.lr = result.lr;
    m.tokens = result.tokens;
    m.step_s = w[0];
    const auto tokens = static_cast<double>(config_.batch.global * config_.model.seq);
    m.tokens_per_s = tokens / w[0];
    m.tflops = TrainFlopsPerToken(config_.model).value * tokens / w[0] / 1e12;
    m.comm_bytes.dp = static_cast<int64_t>(w[1]);
    m.comm_bytes.tp = static_cast<int64_t>(w[2]);
    m.comm_s.dp = w[3];
    m.comm_s.tp = w[4];
    m.peak_bytes = static_cast<int64_t>(w[5]);
    m.peak_rss_bytes = resident;
    m.valid_loss = valid_loss;
    reporter_->Step(m);
  }

  void Save(int64_t step) {
    const nlohmann::json state = {{"config", PrintConfig(config_)}, {"consumed_samples", step * config_.batch.global}};
    SaveCheckpoint(CheckpointFolder(request_), step, session_.CheckpointPieces(), state, config_.checkpoint.keep,
                   world_);
    log_.Write(step, "checkpoint written");
  }

  const TrainRequest& request_;
  const Config& config_;
  Communicator& world_;
  Session session_;
  RankLog log_;
  std::optional<Auditor> auditor_;
  std::optional<Reporter> reporter_;
  int64_t done_ = 0;
};

void PrepareRunFolder(const TrainRequest& request, const Mesh& mesh) {
  std::error_code error;
  fs::create_directories(request.run_dir / "ranks", error);
  if (error) FailUser("--run-dir {}: cannot be created: {}", request.run_dir.string(), error.message());
  if (!request.resume && fs::exists(request.run_dir / "metrics.jsonl")) {
    FailUser("--run-dir {}: holds a run already; choose another folder, or go on with --resume",
             request.run_dir.string());
  }
  WriteFileAtomically(request.run_dir / "config.yaml", PrintConfig(request.config));
  WriteFileAtomically(request.run_dir / "mesh.json", MeshJson(mesh));
}

// What rank 0 decides, or why it cannot: every rank returns the same text, or throws the same UserError.
std::string FromRankZero(Communicator& world, const std::function<std::string()>& decide) {
  std::string text;
  bool wrong = false;
  if (world.rank() == 0) {
    try {
      text = decide();
    } catch (const UserError& e) {
      text = e.what();
      wrong = true;
    }
  }
  at::Tensor head = at::tensor({static_cast<int64_t>(text.size()), static_cast<int64_t>(wrong)}, at::kLong);
  world.Broadcast(head, 0)->Wait();
  at::Tensor bytes = at::empty({head.const_data_ptr<int64_t>()[0]}, at::kByte);
  if (world.rank() == 0) std::copy(text.begin(), text.end(), bytes.mutable_data_ptr<uint8_t>());
  world.Broadcast(bytes, 0)->Wait();
  text.assign(reinterpret_cast<const char*>(bytes.const_data_ptr<uint8_t>()), static_cast<size_t>(bytes.numel()));
  if (head.const_data_ptr<int64_t>()[1] != 0) throw UserError(text);
  return text;
}

int ThreadsPerRank(const TrainOptions& options, int ranks) {
  const int cores = static_cast<int>(std::max(1u, std::thread::hardware_concurrency()));
  return options.threads_per_rank > 0 ? options.threads_per_rank : std::max(1, cores / ranks);
}

}  // namespace

Config ResolveForTraining(Config config, int ranks) {
  if (!config.model.from.empty()) config.model = ReadHuggingFaceConfig(config.model.from);
  ResolveConfig(config, ranks);
  CheckTrainable(config);
  return config;
}

TrainOutcome Train(TrainRequest request) {
  if (request.ranks == 0 && request.launch.processes()) request.ranks = request.launch.world;
  request.config = ResolveForTraining(std::move(request.config), request.ranks);
  const Mesh mesh(request.config.parallel);
  const bool lead = request.launch.rank == 0;
  for (const std::string& text : UnusedSettings(request.config)) {
    if (lead) std::fprintf(stderr, "warning: %s\n", text.c_str());
  }
  if (lead) {  // every input is looked at before anything is written or started
    PlanData(request.config, request.run_dir);
    if (const auto resume = CheckpointToResume(request)) CheckpointReader{*resume};
    if (!request.config.model.from.empty()) OpenHuggingFaceWeights(request.config.model.from);
  }
  if (request.dry_run) {
    if (lead) std::fputs(PrintConfig(request.config).c_str(), stdout);
    return TrainOutcome::kDone;
  }
  std::atomic<bool> interrupted{false};
  const int here =
      !request.launch.processes() || request.launch.local_world == 0 ? mesh.world() : request.launch.local_world;
  const int threads = ThreadsPerRank(request.config.train, here);
  const auto body = [&](Communicator& world) {
    at::set_num_threads(threads);
    omp_set_num_threads(threads);  // the setting is per thread, and at:: sets it for its own pool only once
    // One clock and one directory listing decide for all.
    TrainRequest mine = request;
    mine.run_dir = FromRankZero(world, [&] { return request.run_dir.string(); });
    const std::string checkpoint = FromRankZero(world, [&] { return CheckpointToResume(mine).value_or("").string(); });
    const TrainingData data = PlanData(mine.config, mine.run_dir);
    FromRankZero(world, [&] {
      PrepareRunFolder(mine, mesh);
      WriteData(mine.config, data);
      std::fprintf(stderr, "%d ranks (dp %d x tp %d), %.2f M parameters, run folder %s\n", mesh.world(),
                   mesh.Size(Axis::kDp), mesh.Size(Axis::kTp),
                   static_cast<double>(NumParameters(mine.config.model)) / 1e6, mine.run_dir.c_str());
      return "";
    });
    const auto resume = checkpoint.empty() ? std::nullopt : std::optional<fs::path>(checkpoint);
    if (RankLoop(mine, data, resume, world).Run() == TrainOutcome::kInterrupted) interrupted = true;
  };
  RunRanks(
      request.launch, mesh.world(), std::chrono::duration<double>(request.config.train.timeout_s), body,
      [&](int rank) { return mesh.At(rank).Text(); }, request.stop);
  return interrupted ? TrainOutcome::kInterrupted : TrainOutcome::kDone;
}

}  // namespace trireme
