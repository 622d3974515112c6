#include "kernels/loops.h"

namespace trireme::kernels {

extern const LoopTables kBaselineLoops;
#ifdef __x86_64__
extern const LoopTables kAvx2Loops, kAvx512Loops;
#endif

namespace {

const LoopTables& Tables(InstructionSet set) {
#ifdef __x86_64__
  if (set == InstructionSet::kAvx512) return kAvx512Loops;
  if (set == InstructionSet::kAvx2) return kAvx2Loops;
#endif
  return kBaselineLoops;
}

}  // namespace

InstructionSet BestInstructionSet() {
#ifdef __x86_64__
  const bool avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
  if (avx2 && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512dq") &&
      __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vl")) {
    return InstructionSet::kAvx512;
  }
  if (avx2) return InstructionSet::kAvx2;
#endif
  return InstructionSet::kBaseline;
}

template <>
const Loops<float>& LoopsFor<float>(InstructionSet set) {
  return Tables(set).fp32;
}
template <>
const Loops<double>& LoopsFor<double>(InstructionSet set) {
  return Tables(set).fp64;
}

}  // namespace trireme::kernels
