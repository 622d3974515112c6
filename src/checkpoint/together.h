#pragma once
// What ranks do together on a file system: all succeed, or all fail for the same reason.

#include <functional>
#include <string>
#include <vector>

#include "comm/communicator.h"

namespace trireme {

// Runs `body` (no communication inside) on every rank. When it throws on any, all ranks throw Error with the reason of
// the lowest such rank, after `undo` (must not throw) has run on every rank. Collective over world.
void DoTogether(Communicator& world, const std::string& what, const std::function<void()>& body,
                const std::function<void()>& undo);

// Every rank's text in rank order, on all ranks. Collective over world.
std::vector<std::string> GatherTexts(Communicator& world, const std::string& text);

}  // namespace trireme
