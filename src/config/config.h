#pragma once
// The one typed tree of settings. Each module's settings live in that module's options.h; this file only joins them.
// Only config, planner and train see the whole tree.

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "checkpoint/options.h"
#include "data/options.h"
#include "mesh/options.h"
#include "model_spec/options.h"
#include "optim/options.h"
#include "report/options.h"
#include "train/options.h"

namespace trireme {

struct Config {
  uint64_t seed = 1;
  ModelOptions model;
  DataOptions data;
  BatchOptions batch;
  ParallelOptions parallel;
  PipelineOptions pipeline;
  OptimizerOptions optimizer;
  MemoryOptions memory;
  PrecisionOptions precision;
  TrainOptions train;
  CheckpointOptions checkpoint;
  LogOptions log;

  template <class Visitor>
  void VisitFields(Visitor& v) {
    v.Field("seed", seed, "keys every random number of the run: initial weights, order of samples");
    v.Section("model", model, "the shape of the model");
    v.Section("data", data, "where samples come from");
    v.Section("batch", batch, "how many samples make a step");
    v.Section("parallel", parallel, "how ranks are arranged");
    v.Section("pipeline", pipeline, "the pipeline's schedule");
    v.Section("optimizer", optimizer, "the update rule");
    v.Section("memory", memory, "what is kept and what is recomputed");
    v.Section("precision", precision, "number types");
    v.Section("train", train, "how long and on what");
    v.Section("checkpoint", checkpoint, "when state is saved");
    v.Section("log", log, "what the run writes about itself");
  }
};

// Reads YAML. `name` stands in messages (file:line:column). Unknown fields and wrong types throw UserError that
// suggests the nearest names or the right type. Nothing is validated across fields.
Config ParseConfig(std::string_view yaml, std::string_view name);
Config LoadConfig(const std::filesystem::path& path);

// Applies `path=value` (as --set gives it; value is YAML). Throws UserError as above.
void SetField(Config& config, std::string_view assignment);

// Fills kv_heads, ffn and head_dim where they are 0. No checks.
void ResolveModel(ModelOptions& model);

// Checks every field and combination for a run of `ranks` ranks (0: as many as the degrees multiply to), and fills what
// is derived (dp, kv_heads, ffn, head_dim, batch.micro). Throws UserError with all findings, one a line: field, value,
// rule, a working alternative. Does not touch the file system.
void ResolveConfig(Config& config, int ranks);

// Throws UserError for a resolved layout that this version can describe (`trireme mesh`) but not train.
void CheckTrainable(const Config& config);

// Settings that are given but have no effect in this run, one sentence each.
std::vector<std::string> UnusedSettings(const Config& config);

// The whole tree as YAML, every field with its reason as a comment; ParseConfig reads it back to an equal tree.
std::string PrintConfig(const Config& config);

}  // namespace trireme
