#define TRIREME_LOOPS kBaselineLoops
#include "kernels/loops.inc"
