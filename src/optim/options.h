#pragma once
// The update rule. Section `optimizer` of the configuration.

#include <cstdint>
#include <string>
#include <vector>

namespace trireme {

struct OptimizerOptions {
  std::string name = "adamw";
  double lr = 3e-4;
  std::vector<double> betas = {0.9, 0.95};
  double eps = 1e-8;
  double weight_decay = 0.1;
  std::vector<std::string> no_decay = {"norms", "biases", "embeddings"};
  double clip = 1.0;
  std::string on_nan = "stop";
  std::string schedule = "cosine";
  int64_t warmup = 0;
  double min_lr = 0.0;

  template <class Visitor>
  void VisitFields(Visitor& v) {
    v.Field("name", name, "adamw or sgd (plain: weights -= lr * gradient)");
    v.Field("lr", lr, "peak learning rate");
    v.Field("betas", betas, "decay of AdamW's two moments");
    v.Field("eps", eps, "added to the root of AdamW's second moment");
    v.Field("weight_decay", weight_decay, "decoupled: weights -= lr * weight_decay * weights");
    v.Field("no_decay", no_decay, "kinds of parameters without weight decay: norms, biases, embeddings");
    v.Field("clip", clip, "gradients are scaled down to this global norm; 0 never clips");
    v.Field("on_nan", on_nan,
            "what all ranks do together when the gradient norm is not finite: stop, or skip the update");
    v.Field("schedule", schedule,
            "constant, cosine, linear, or wsd (constant, then linear over the last fifth), after warm-up");
    v.Field("warmup", warmup, "steps over which the learning rate rises linearly from 0");
    v.Field("min_lr", min_lr, "learning rate at the end of cosine, linear and wsd");
  }
};

}  // namespace trireme
