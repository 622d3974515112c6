#pragma once
// Memory of this process as the system sees it.

#include "base/units.h"

namespace trireme {

Bytes PeakResidentBytes();  // highest resident set so far

}  // namespace trireme
