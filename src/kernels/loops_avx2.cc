#define TRIREME_LOOPS kAvx2Loops
#include "kernels/loops.inc"
