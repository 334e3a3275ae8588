// What the sampler asks of a row of logits (kernels/ops.h, HeadState), in one block a request.
#pragma once

#include <cstdint>

#include "kernels/cuda/launch.h"
#include "kernels/ops.h"

namespace nightshift::cuda {

// Tokens of one step of the running sums; vocabulary shards are whole multiples of it.
inline constexpr int64_t kHeadTile = 64;

// A request with its state before the shard, and what it becomes.
struct HeadTask {
  const float* logits = nullptr;  // adjusted, on the device
  uint64_t noise_key = 0;
  float temperature = 0.0F;
  float max_logit = 0.0F;
  double sum_exp = 0.0;
  double tempered_sum_exp = 0.0;
  float best_noisy = 0.0F;
  int32_t noisy_winner = -1;
  float noisy_winner_logit = 0.0F;
  // Logits that do not pass this are no candidates: of a full list the least one, else -infinity.
  float threshold = 0.0F;
  int32_t wanted = 1;
  int32_t num_candidates = 0;       // of this shard, in any order
  Candidate* candidates = nullptr;  // on the device, room for the lesser of wanted and the shard
};

// Folds logits of tokens [first_token, first_token + count) into the tasks, which lie on the
// device. Asynchronous on the launcher's stream.
void LaunchHeadReduce(Launcher& launcher, HeadTask* tasks, int64_t num_tasks, int64_t count,
                      int32_t first_token);

// A row to copy and adjust before it is reduced.
struct AdjustTask {
  const float* logits = nullptr;
  float* adjusted = nullptr;                     // [count]
  const LogitAdjustment* adjustments = nullptr;  // those of the shard's tokens, on the device
  int32_t num_adjustments = 0;
  float* unadjusted = nullptr;  // [num_adjustments]
};
void LaunchAdjust(Launcher& launcher, const AdjustTask* tasks, int64_t num_tasks, int64_t count,
                  int32_t first_token);

}  // namespace nightshift::cuda
