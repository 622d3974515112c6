#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "base/error.h"
#include "config/config.h"

namespace trireme {
namespace {

// Collects findings; one a line in the end.
class Findings {
 public:
  template <class... Args>
  void Add(fmt::format_string<Args...> format, Args&&... args) {
    lines_.push_back(fmt::format(format, std::forward<Args>(args)...));
  }
  template <class T>
  void AtLeast(const char* field, T value, T least) {
    if (value < least) Add("{}: {}; expected at least {}", field, value, least);
  }
  void OneOf(const char* field, const std::string& value, const std::vector<std::string>& known) {
    if (std::ranges::find(known, value) == known.end())
      Add("{}: '{}'; expected {}", field, value, fmt::join(known, " or "));
  }
  bool empty() const { return lines_.empty(); }
  void Throw() const {
    if (!lines_.empty()) throw UserError(fmt::format("{}", fmt::join(lines_, "\n")));
  }

 private:
  std::vector<std::string> lines_;
};

std::string Divisors(int64_t n, int64_t most) {
  std::vector<int64_t> divisors;
  for (int64_t d = 1; d <= std::min(n, most); ++d) {
    if (n % d == 0) divisors.push_back(d);
  }
  return fmt::format("{}", fmt::join(divisors, ", "));
}

void CheckModel(const ModelOptions& m, Findings& f) {
  f.OneOf("model.family", m.family, {"llama"});
  f.AtLeast<int64_t>("model.layers", m.layers, 1);
  f.AtLeast<int64_t>("model.hidden", m.hidden, 1);
  f.AtLeast<int64_t>("model.heads", m.heads, 1);
  f.AtLeast<int64_t>("model.kv_heads", m.kv_heads, 1);
  f.AtLeast<int64_t>("model.head_dim", m.head_dim, 1);
  f.AtLeast<int64_t>("model.ffn", m.ffn, 1);
  f.AtLeast<int64_t>("model.vocab", m.vocab, 1);
  f.AtLeast<int64_t>("model.seq", m.seq, 1);
  f.AtLeast<int64_t>("model.padded_vocab", m.padded_vocab, 1);
  if (!(m.rope_theta > 0)) f.Add("model.rope_theta: {}; expected more than 0", m.rope_theta);
  if (!(m.norm_eps > 0)) f.Add("model.norm_eps: {}; expected more than 0, such as 1e-5", m.norm_eps);
  if (!(m.init_std >= 0)) f.Add("model.init_std: {}; expected at least 0", m.init_std);
  if (m.head_dim > 0 && m.head_dim % 2 != 0)
    f.Add("model.head_dim: {}; rotary embedding turns pairs: use an even width", m.head_dim);
  if (m.heads > 0 && m.kv_heads > 0 && m.heads % m.kv_heads != 0) {
    f.Add("model.kv_heads: {} does not divide model.heads: {}; use one of {}", m.kv_heads, m.heads,
          Divisors(m.heads, m.heads));
  }
}

void CheckTensorParallel(const ModelOptions& m, int tp, Findings& f) {
  if (tp < 1 || m.heads < 1 || m.kv_heads < 1 || m.ffn < 1) return;
  if (m.heads % tp != 0)
    f.Add("parallel.tp: {} does not divide model.heads: {}; use one of {}", tp, m.heads, Divisors(m.heads, 64));
  if (m.kv_heads % tp != 0 && tp % m.kv_heads != 0) {
    f.Add(
        "parallel.tp: {} neither divides model.kv_heads: {} nor is a multiple of it; use one of {}, or a multiple of "
        "{}",
        tp, m.kv_heads, Divisors(m.kv_heads, 64), m.kv_heads);
  }
  if (m.ffn % tp != 0) {
    f.Add("model.ffn: {} is not a multiple of parallel.tp: {}; use {} or {}", m.ffn, tp,
          std::max<int64_t>(tp, m.ffn / tp * tp), (m.ffn / tp + 1) * tp);
  }
}

void ResolveWorld(ParallelOptions& p, int ranks, Findings& f) {
  for (const auto& [name, degree] : {std::pair{"parallel.tp", p.tp},
                                     {"parallel.pp", p.pp},
                                     {"parallel.cp", p.cp},
                                     {"parallel.ep", p.ep},
                                     {"parallel.expert_tp", p.expert_tp}}) {
    f.AtLeast(name, degree, 1);
  }
  f.AtLeast("parallel.dp", p.dp, 0);
  if (!f.empty()) return;
  const int64_t others = int64_t{p.tp} * p.pp * p.cp;
  if (p.dp == 0 && ranks == 0) p.dp = 1;
  if (p.dp == 0) {
    if (ranks % others != 0) {
      f.Add("--ranks: {} is not a multiple of tp {} x pp {} x cp {} = {}; use {} or {} ranks", ranks, p.tp, p.pp, p.cp,
            others, std::max<int64_t>(others, ranks / others * others), (ranks / others + 1) * others);
      return;
    }
    p.dp = static_cast<int>(ranks / others);
  }
  if (ranks != 0 && p.dp * others != ranks) {
    f.Add(
        "--ranks: {} but dp {} x tp {} x pp {} x cp {} = {}; start {} ranks, or set parallel.dp: 0 to take what is "
        "left",
        ranks, p.dp, p.tp, p.pp, p.cp, p.dp * others, p.dp * others);
  }
  std::vector<std::string> named = p.order;
  std::ranges::sort(named);
  for (const std::string& axis : p.order) f.OneOf("parallel.order", axis, {"tp", "cp", "dp", "pp"});
  if (std::ranges::adjacent_find(named) != named.end())
    f.Add("parallel.order: [{}] names an axis twice", fmt::join(p.order, ", "));
  for (const auto& [axis, degree] : {std::pair{"tp", p.tp}, {"cp", p.cp}, {"dp", p.dp}, {"pp", p.pp}}) {
    if (degree > 1 && std::ranges::find(p.order, axis) == p.order.end()) {
      f.Add("parallel.order: [{}] leaves out {}, but parallel.{} is {}; use [tp, cp, dp, pp]", fmt::join(p.order, ", "),
            axis, axis, degree);
    }
  }
}

void ResolveBatch(BatchOptions& b, int dp, Findings& f) {
  f.AtLeast<int64_t>("batch.global", b.global, 1);
  f.AtLeast<int64_t>("batch.micro", b.micro, 0);
  if (!f.empty() || dp < 1) return;
  const int64_t unit = dp * std::max<int64_t>(1, b.micro);
  if (b.global % unit != 0) {
    const int64_t below = b.global / unit * unit;
    f.Add("batch.global: {} is not a multiple of batch.micro {} x parallel.dp {} = {}; use {}{}", b.global,
          std::max<int64_t>(1, b.micro), dp, unit, below > 0 ? fmt::format("{} or ", below) : "", below + unit);
    return;
  }
  if (b.micro == 0) b.micro = b.global / dp;
}

void CheckData(const Config& c, Findings& f) {
  const DataOptions& d = c.data;
  const int sources = !d.text.empty() + !d.tokens.empty() + d.synthetic;
  if (sources != 1)
    f.Add("data: {} sources are given; expected one of data.text: [FILES], data.tokens: PREFIX, data.synthetic: true",
          sources);
  f.OneOf("data.tokenizer", d.tokenizer, {"bytes"});
  if (!d.text.empty() && c.model.vocab < 256)
    f.Add("model.vocab: {}; the byte tokenizer of data.text needs at least 256", c.model.vocab);
  if (!(d.validation >= 0 && d.validation < 1))
    f.Add("data.validation: {}; expected a share of at least 0 and less than 1", d.validation);
}

void CheckOptimizer(const Config& c, Findings& f) {
  const OptimizerOptions& o = c.optimizer;
  f.OneOf("optimizer.name", o.name, {"adamw", "sgd"});
  f.OneOf("optimizer.schedule", o.schedule, {"constant", "cosine", "linear", "wsd"});
  f.OneOf("optimizer.on_nan", o.on_nan, {"stop", "skip"});
  for (const std::string& kind : o.no_decay) f.OneOf("optimizer.no_decay", kind, {"norms", "biases", "embeddings"});
  if (!(o.lr > 0)) f.Add("optimizer.lr: {}; expected more than 0", o.lr);
  if (!(o.min_lr >= 0 && o.min_lr <= o.lr))
    f.Add("optimizer.min_lr: {}; expected 0 .. optimizer.lr ({})", o.min_lr, o.lr);
  if (!(o.eps > 0)) f.Add("optimizer.eps: {}; expected more than 0", o.eps);
  if (!(o.weight_decay >= 0)) f.Add("optimizer.weight_decay: {}; expected at least 0", o.weight_decay);
  if (!(o.clip >= 0)) f.Add("optimizer.clip: {}; expected at least 0 (0 never clips)", o.clip);
  const auto fraction = [](double x) { return x >= 0 && x < 1; };
  if (o.betas.size() != 2 || !std::ranges::all_of(o.betas, fraction)) {
    f.Add("optimizer.betas: [{}]; expected two numbers of at least 0 and less than 1, such as [0.9, 0.95]",
          fmt::join(o.betas, ", "));
  }
  f.AtLeast<int64_t>("optimizer.warmup", o.warmup, 0);  // a run may end while it still warms up
}

void CheckRun(const Config& c, Findings& f) {
  f.AtLeast<int64_t>("train.steps", c.train.steps, 1);
  f.AtLeast<int64_t>("train.eval_every", c.train.eval_every, 0);
  f.AtLeast("train.threads_per_rank", c.train.threads_per_rank, 0);
  if (!(c.train.timeout_s > 0)) f.Add("train.timeout_s: {}; expected more than 0", c.train.timeout_s);
  f.OneOf("train.device", c.train.device, {"cpu"});
  f.OneOf("precision.compute", c.precision.compute, {"fp32", "fp64"});
  f.OneOf("precision.deterministic", c.precision.deterministic, {"run"});
  f.OneOf("memory.recompute", c.memory.recompute, {"none"});
  f.OneOf("pipeline.schedule", c.pipeline.schedule,
          {"gpipe", "1f1b", "interleaved", "looped-bfs", "zb-h1", "zb-v", "dualpipe-v", "auto"});
  f.AtLeast<int64_t>("checkpoint.every", c.checkpoint.every, -1);
  f.AtLeast<int64_t>("checkpoint.keep", c.checkpoint.keep, 0);
  f.AtLeast<int64_t>("log.every", c.log.every, 1);
  f.AtLeast<int64_t>("log.sample", c.log.sample, 0);
  if (c.log.sample > 0 && c.checkpoint.every < 0)
    f.Add("log.sample: {} needs the checkpoint that checkpoint.every: -1 never writes; use 0", c.log.sample);
  for (const int64_t step : c.log.dump.steps) f.AtLeast<int64_t>("log.dump.steps", step, 1);
}

}  // namespace

void ResolveModel(ModelOptions& m) {
  if (m.kv_heads == 0) m.kv_heads = m.heads;
  if (m.head_dim == 0 && m.heads > 0 && m.hidden % m.heads == 0) m.head_dim = m.hidden / m.heads;
  if (m.ffn == 0) m.ffn = (m.hidden * 8 / 3 + 31) / 32 * 32;
}

void ResolveConfig(Config& config, int ranks) {
  Findings f;
  const ModelOptions& m = config.model;
  if (m.head_dim == 0 && m.heads > 0 && m.hidden > 0 && m.hidden % m.heads != 0) {
    f.Add("model.hidden: {} is not a multiple of model.heads: {}; use one of {} heads, or give model.head_dim",
          m.hidden, m.heads, Divisors(m.hidden, 64));
    f.Throw();
  }
  ResolveModel(config.model);
  CheckModel(m, f);
  f.Throw();
  ResolveWorld(config.parallel, ranks, f);
  CheckTensorParallel(m, config.parallel.tp, f);
  if (config.parallel.pp > m.layers)
    f.Add("parallel.pp: {} stages for model.layers: {}; a stage needs at least one layer", config.parallel.pp,
          m.layers);
  f.Throw();
  ResolveBatch(config.batch, config.parallel.dp, f);
  CheckData(config, f);
  CheckOptimizer(config, f);
  CheckRun(config, f);
  f.Throw();
}

void CheckTrainable(const Config& config) {
  Findings f;
  const ParallelOptions& p = config.parallel;
  for (const auto& [axis, degree] : {std::pair{"pp", p.pp}, {"cp", p.cp}, {"ep", p.ep}, {"expert_tp", p.expert_tp}}) {
    if (degree > 1) f.Add("parallel.{}: {}; this version trains over dp and tp: use {}: 1", axis, degree, axis);
  }
  f.Throw();
}

std::vector<std::string> UnusedSettings(const Config& config) {
  const Config plain;
  std::vector<std::string> unused;
  if (config.parallel.pp == 1 && config.pipeline.schedule != plain.pipeline.schedule) {
    unused.push_back("pipeline.schedule has no effect at parallel.pp: 1");
  }
  const OptimizerOptions& o = config.optimizer;
  if (o.name == "sgd" && (o.betas != plain.optimizer.betas || o.eps != plain.optimizer.eps)) {
    unused.push_back("optimizer.betas and optimizer.eps have no effect on sgd");
  }
  if (o.schedule == "constant" && o.min_lr > 0)
    unused.push_back("optimizer.min_lr has no effect on a constant schedule");
  if (!config.model.from.empty() && config.model.init_std != plain.model.init_std)
    unused.push_back("model.init_std has no effect: the weights come from model.from");
  return unused;
}

}  // namespace trireme
