#pragma once
// How ranks are arranged. Section `parallel` of the configuration.

#include <string>
#include <vector>

namespace trireme {

struct ParallelOptions {
  int dp = 1;  // 0: what is left of the world size
  int tp = 1;
  int pp = 1;
  int cp = 1;
  int ep = 1;
  int expert_tp = 1;
  std::vector<std::string> order = {"tp", "cp", "dp", "pp"};

  template <class Visitor>
  void VisitFields(Visitor& v) {
    v.Field("dp", dp, "replicas that train on different samples; 0 means what --ranks leaves");
    v.Field("tp", tp, "ranks that share each layer's matrices; keep it inside one node, it talks most");
    v.Field("pp", pp, "pipeline stages");
    v.Field("cp", cp, "ranks that share each sequence");
    v.Field("ep", ep, "ranks that spread the experts of a layer");
    v.Field("expert_tp", expert_tp, "ranks that share each expert's matrices");
    v.Field("order", order, "axes from fastest to slowest varying rank: neighbours in rank belong to the first");
  }
};

}  // namespace trireme
