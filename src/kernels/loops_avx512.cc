#define TRIREME_LOOPS kAvx512Loops
#include "kernels/loops.inc"
