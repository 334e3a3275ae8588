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

struct TileSums {
  float plain = 0.0F;
  float tempered = 0.0F;
};

// Sums of exp(logit - max) and exp((logit - max) * factor) over up to 64 logits; factor 0: only the
// first.
TileSums SumExpsOfTile(const float* logits, int64_t count, float max, float factor);

// Up to 64 logits of tokens from `first_token` on, a request's noise, and what it has to beat.
struct ContenderArgs {
  const float* logits = nullptr;
  int64_t count = 0;
  int32_t first_token = 0;
  uint64_t noise_key = 0;
  float temperature = 1.0F;
  float best_noisy = 0.0F;
};

// Index of a logit, from `index` on, before which none over the temperature and with its noise is
// above the best; `count` if there is none. Spares most tokens the noise's two logarithms.
int64_t NextContender(const ContenderArgs& args, int64_t index);

}  // namespace nightshift::cpu
