#pragma once
// How launchers start ranks, for tests.

#include <string>
#include <vector>

#include "testing/process.h"

namespace trireme::testing {

// mpirun -np N program words, on this host, more ranks than cores allowed.
inline Process MpiRun(int ranks, const std::string& program, const std::vector<std::string>& words) {
  std::vector<std::string> all{
      "--allow-run-as-root", "--oversubscribe", "--bind-to", "none", "-np", std::to_string(ranks), program};
  all.insert(all.end(), words.begin(), words.end());
  return Process("mpirun", all, {"OMPI_MCA_rmaps_base_oversubscribe=1"});
}

}  // namespace trireme::testing
