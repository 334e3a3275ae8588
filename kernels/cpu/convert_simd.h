// Bulk conversions of 16-bit floats, by run-time dispatch. kernels/convert.h is the public door.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/convert.h"

namespace nightshift::cpu {

void WidenF16(const std::byte* source, int64_t count, float* target);
void WidenBF16(const std::byte* source, int64_t count, float* target);
void RoundToF16(const float* source, int64_t count, std::byte* target);
void RoundToBF16(const float* source, int64_t count, std::byte* target);
// Rounds to bf16 and widens back, the inputs of a bf16 matmul. The two may be the same.
void RoundThroughBF16(const float* source, int64_t count, float* target);

void ExpandCodes(const GroupCodes& group, const float* scales, const float* minimums, int64_t pairs,
                 float* target);

}  // namespace nightshift::cpu
