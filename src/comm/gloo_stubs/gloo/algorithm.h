#pragma once
// Empty: ProcessGroupGloo.hpp includes it and uses nothing of it. See context.h.
