#pragma once
// The sum of ranks' tensors, in rank order and in fp32 or wider: every back end gives the same bits. Internal to comm.

#include <c10/core/ScalarType.h>

#include <span>

#include "comm/communicator.h"

namespace trireme::internal {

bool CanReduce(at::ScalarType type);  // fp32, fp64, bf16, fp16, int64, int32, uint8

// Elements 0 .. n-1 of all `ins`, reduced in order, written to each of `outs`. A block is read from all inputs before
// it is written to any output: an output may be an input (at the same place).
void Reduce(at::ScalarType type, ReduceOp op, std::span<const void* const> ins, std::span<void* const> outs, int64_t n);

}  // namespace trireme::internal
