#include "trireme/run.h"

#include <unistd.h>

#include <cstdio>
#include <string_view>

#include "train/launch.h"

namespace trireme {

int RunDistributed(const RunOptions& options, const std::function<void(Communicator& world)>& body) {
  try {
    Environment environment;
    for (char** at = environ; *at != nullptr; ++at) {
      const std::string_view text(*at);
      const size_t equals = text.find('=');
      if (equals != std::string_view::npos) environment.emplace(text.substr(0, equals), text.substr(equals + 1));
    }
    const Launch launch = DetectLaunch("auto", environment);
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
