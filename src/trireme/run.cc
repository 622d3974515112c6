#include "trireme/run.h"

#include <unistd.h>

#include <cstdio>
#include <string>

#include "train/launch.h"

namespace trireme {

int RunDistributed(const RunOptions& options, const std::function<void(Communicator& world)>& body) {
  try {
    const Launch launch = DetectLaunch("auto", ParseEnvironment(environ));
    RunRanks(
        launch, launch.processes() ? launch.world : options.ranks, options.timeout, body,
        [](int) { return std::string(); }, nullptr);
    return 0;
  } catch (const UserError& e) {
    std::fprintf(stderr, "error: %s\n", e.what());
    return 2;
  } catch (const std::exception& e) {
    std::fprintf(stderr, "error: %s\n", e.what());
    return 1;
  }
}

}  // namespace trireme
