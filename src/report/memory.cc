#include "report/memory.h"

#include <sys/resource.h>

namespace trireme {

Bytes PeakResidentBytes() {
  struct rusage usage {};
  ::getrusage(RUSAGE_SELF, &usage);
  return Bytes(usage.ru_maxrss * 1024);  // Linux counts KiB
}

}  // namespace trireme
