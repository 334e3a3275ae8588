// The Walsh-Hadamard transform of heads, which spreads a key's few large numbers over all its
// dimensions before it is quantised: a group's range, and so its step, is smaller for it.
//
// H is symmetric and H H = n, so (H q) . (H k) = n (q . k): queries and keys that are both
// transformed have the same scores. A head of width D is cut into blocks of n, the largest power of
// two that divides D; an odd width stays as it is.
// Source: Ashkboos et al. 2024, QuaRot, "KV-cache quantisation".
#pragma once

#include <cstdint>

namespace nightshift::cpu {

// Transforms in place, then multiplies by a power of two; what keys and queries are multiplied by
// is together 1 / n, so products need no other factor. In f32, sums of neighbours first: n / 2
// butterflies (a + b, a - b) at distance 1, then at distance 2 and so on.
void TransformKey(int64_t width, float* head);
void TransformQuery(int64_t width, float* head);

}  // namespace nightshift::cpu
