// Folding logits into a row's running HeadState.
#pragma once

#include <cstdint>

#include "kernels/ops.h"

namespace nightshift::cpu {

// Tokens of one step of the running sums. Vocabulary shards are whole multiples of it, so the
// sums' bits do not depend on how the vocabulary is cut into shards.
inline constexpr int64_t kHeadTile = 64;

// Folds logits of tokens [first_token, first_token + count) into `state`.
void ReduceHeadRow(const float* logits, int64_t count, int32_t first_token,
                   const HeadRequest& request, HeadState& state);

// Maximum of up to 64 logits. NaNs are passed over unless all are.
float MaxOfTile(const float* logits, int64_t count);
// Sum of exp((logit - max) * factor) over up to 64 logits.
float SumExpOfTile(const float* logits, int64_t count, float max, float factor);

}  // namespace nightshift::cpu
