#include "kernels/cuda/head_reduce.h"

#include <cmath>
#include <cstdint>

#include "kernels/cuda/device_math.cuh"
#include "kernels/noise.h"

namespace nightshift::cuda {
namespace {

constexpr int kHeadThreads = 256;
constexpr int kHeadWarps = kHeadThreads / kWarpThreads;
// Tiles whose sums are kept at one time.
constexpr int kChunkTiles = 512;
constexpr int kTileTokens = static_cast<int>(kHeadTile);
constexpr int kRadix = 256;

__device__ int Thread() {
  return static_cast<int>(threadIdx.x);
}

// --- Running sums: tiles in parallel, then one thread in their order.

struct TileSums {
  float running_max[kChunkTiles];  // first the tile's own maximum
  float plain[kChunkTiles];
  float tempered[kChunkTiles];
};

__device__ float WarpMax(float value) {
  for (int distance = kWarpThreads / 2; distance > 0; distance /= 2) {
    value = fmaxf(value, __shfl_xor_sync(kAllLanes, value, distance));
  }
  return value;
}

// One warp: the tile's maximum; NaNs are passed over.
__device__ void FindTileMax(const float* logits, int count, float* target) {
  const int lane = Thread() % kWarpThreads;
  float max = -INFINITY;
  if (lane < count) max = fmaxf(max, logits[lane]);
  if (lane + kWarpThreads < count) max = fmaxf(max, logits[lane + kWarpThreads]);
  max = WarpMax(max);
  if (lane == 0) *target = max;
}

// One warp: sums of exp((logit - max) * factor), two a lane, then over the lanes.
__device__ float SumExps(const float* logits, int count, float max, float factor) {
  const int lane = Thread() % kWarpThreads;
  const float first = lane < count ? expf((logits[lane] - max) * factor) : 0.0F;
  const float second =
      lane + kWarpThreads < count ? expf((logits[lane + kWarpThreads] - max) * factor) : 0.0F;
  return WarpSum(first + second);
}

// One thread: the chunk's tiles in ascending order.
__device__ void AddTiles(const TileSums& sums, int tiles, float factor, HeadTask& task) {
  for (int tile = 0; tile < tiles; ++tile) {
    const float max = sums.running_max[tile];
    // Until a finite logit comes there is nothing to be relative to.
    if (max == -INFINITY) continue;
    if (max > task.max_logit) {
      const double step = static_cast<double>(task.max_logit) - static_cast<double>(max);
      task.sum_exp *= exp(step);
      if (factor > 0.0F) task.tempered_sum_exp *= exp(step * static_cast<double>(factor));
      task.max_logit = max;
    }
    task.sum_exp += static_cast<double>(sums.plain[tile]);
    if (factor > 0.0F) task.tempered_sum_exp += static_cast<double>(sums.tempered[tile]);
  }
}

__device__ void ReduceSums(const float* logits, int64_t count, HeadTask& task, TileSums& sums) {
  const float factor = task.temperature > 0.0F ? 1.0F / task.temperature : 0.0F;
  const int warp = Thread() / kWarpThreads;
  for (int64_t first = 0; first < count; first += kChunkTiles * kTileTokens) {
    const int64_t left = count - first;
    const int tiles =
        static_cast<int>(min((left + kTileTokens - 1) / kTileTokens, int64_t{kChunkTiles}));
    const auto tile_count = [&](int tile) {
      return static_cast<int>(min(left - int64_t{tile} * kTileTokens, int64_t{kTileTokens}));
    };
    for (int tile = warp; tile < tiles; tile += kHeadWarps) {
      FindTileMax(logits + first + tile * kTileTokens, tile_count(tile), sums.running_max + tile);
    }
    __syncthreads();
    if (Thread() == 0) {
      float max = task.max_logit;
      for (int tile = 0; tile < tiles; ++tile) {
        max = fmaxf(max, sums.running_max[tile]);
        sums.running_max[tile] = max;
      }
    }
    __syncthreads();
    for (int tile = warp; tile < tiles; tile += kHeadWarps) {
      const float* tile_logits = logits + first + tile * kTileTokens;
      const float max = sums.running_max[tile];
      const float plain = SumExps(tile_logits, tile_count(tile), max, 1.0F);
      const float tempered = factor > 0.0F && factor != 1.0F
                                 ? SumExps(tile_logits, tile_count(tile), max, factor)
                                 : plain;
      if (Thread() % kWarpThreads == 0) {
        sums.plain[tile] = plain;
        sums.tempered[tile] = tempered;
      }
    }
    __syncthreads();
    if (Thread() == 0) AddTiles(sums, tiles, factor, task);
    __syncthreads();
  }
}

// --- The winner, and the best logit: of equal ones the lower token.

struct Best {
  float value;
  float logit;
  int32_t token;  // -1: none
};

__device__ bool IsBetter(const Best& a, const Best& b) {
  return a.value > b.value ||
         (a.value == b.value && a.token >= 0 && (b.token < 0 || a.token < b.token));
}

// The best of all threads, in thread 0.
__device__ Best BestOfBlock(Best best, Best* warps) {
  for (int distance = kWarpThreads / 2; distance > 0; distance /= 2) {
    const Best other = {__shfl_xor_sync(kAllLanes, best.value, distance),
                        __shfl_xor_sync(kAllLanes, best.logit, distance),
                        __shfl_xor_sync(kAllLanes, best.token, distance)};
    if (IsBetter(other, best)) best = other;
  }
  __syncthreads();
  if (Thread() % kWarpThreads == 0) warps[Thread() / kWarpThreads] = best;
  __syncthreads();
  if (Thread() == 0) {
    for (int warp = 1; warp < kHeadWarps; ++warp) {
      if (IsBetter(warps[warp], best)) best = warps[warp];
    }
  }
  return best;
}

// Not less than the noise of a token by more than rounding: -log(-log u) <= -log(1 - u).
__device__ float NoiseBound(uint64_t noise_key, int32_t token) {
  return 0.01F - logf(static_cast<float>(1.0 - UniformAt(noise_key, token)));
}

// Of a thread's tokens. `best` starts with what is to be beaten.
__device__ Best FindWinner(const float* logits, int64_t count, int32_t first_token,
                           const HeadTask& task) {
  const bool is_noisy = task.temperature > 0.0F;
  Best best = {task.best_noisy, 0.0F, -1};
  for (int64_t i = Thread(); i < count; i += kHeadThreads) {
    const int32_t token = first_token + static_cast<int32_t>(i);
    const float logit = logits[i];
    float value = logit;
    if (is_noisy) {
      value = logit / task.temperature;
      // Spares most tokens the noise's two logarithms in f64.
      const float bound = value + NoiseBound(task.noise_key, token);
      if (bound + 1e-6F * (fabsf(value) + fabsf(best.value)) < best.value) continue;
      value += static_cast<float>(-log(-log(UniformAt(task.noise_key, token))));
    }
    if (value > best.value) best = {value, logit, token};
  }
  return best;
}

__device__ Best FindBestLogit(const float* logits, int64_t count, int32_t first_token) {
  Best best = {-INFINITY, 0.0F, -1};
  for (int64_t i = Thread(); i < count; i += kHeadThreads) {
    if (logits[i] > best.value) {
      best = {logits[i], logits[i], first_token + static_cast<int32_t>(i)};
    }
  }
  return best;
}

// --- Candidates: those of the `wanted` largest keys; no two keys are equal.

// Larger logits have larger keys, of equal ones lower tokens.
__device__ uint64_t KeyOf(float logit, int64_t index) {
  const uint32_t bits = __float_as_uint(logit == 0.0F ? 0.0F : logit);
  const uint32_t ordered = (bits & 0x80000000U) != 0 ? ~bits : bits | 0x80000000U;
  return static_cast<uint64_t>(ordered) << 32 | (0xffffffffU - static_cast<uint32_t>(index));
}

struct SelectScratch {
  int counts[kRadix];
  int remaining;
  uint64_t prefix;
  bool is_done;
};

// The least key that is wanted, of more than that many above the threshold: digit by digit from the
// top, until all that share the digits are wanted.
__device__ uint64_t LeastWantedKey(const float* logits, int64_t count, const HeadTask& task,
                                   SelectScratch& scratch) {
  if (Thread() == 0) {
    scratch.remaining = task.wanted;
    scratch.prefix = 0;
    scratch.is_done = false;
  }
  int shift = 64;
  do {
    shift -= 8;
    for (int i = Thread(); i < kRadix; i += kHeadThreads) {
      scratch.counts[i] = 0;
    }
    __syncthreads();
    const uint64_t prefix = scratch.prefix;
    for (int64_t i = Thread(); i < count; i += kHeadThreads) {
      if (!(logits[i] > task.threshold)) continue;
      const uint64_t key = KeyOf(logits[i], i);
      const bool shares = shift == 56 || key >> (shift + 8) == prefix;
      if (shares) atomicAdd(scratch.counts + (key >> shift & (kRadix - 1)), 1);
    }
    __syncthreads();
    if (Thread() == 0) {
      int digit = kRadix - 1;
      for (; scratch.counts[digit] < scratch.remaining; --digit) {
        scratch.remaining -= scratch.counts[digit];
      }
      scratch.prefix = prefix << 8 | static_cast<uint64_t>(digit);
      scratch.is_done = scratch.counts[digit] == scratch.remaining;
    }
    __syncthreads();
  } while (!scratch.is_done);
  return scratch.prefix << shift;
}

__device__ void FindCandidates(const float* logits, int64_t count, int32_t first_token,
                               HeadTask& task, SelectScratch& scratch) {
  int passing = 0;
  for (int64_t i = Thread(); i < count; i += kHeadThreads) {
    if (logits[i] > task.threshold) ++passing;
  }
  if (Thread() == 0) {
    scratch.counts[0] = 0;
    scratch.counts[1] = 0;
  }
  __syncthreads();
  if (passing > 0) atomicAdd(scratch.counts, passing);
  __syncthreads();
  const bool takes_all = scratch.counts[0] <= task.wanted;
  __syncthreads();
  const uint64_t least = takes_all ? 0 : LeastWantedKey(logits, count, task, scratch);
  if (Thread() == 0) scratch.counts[0] = 0;
  __syncthreads();
  for (int64_t i = Thread(); i < count; i += kHeadThreads) {
    if (!(logits[i] > task.threshold) || KeyOf(logits[i], i) < least) continue;
    task.candidates[atomicAdd(scratch.counts, 1)] = {first_token + static_cast<int32_t>(i),
                                                     logits[i]};
  }
  __syncthreads();
  if (Thread() == 0) task.num_candidates = scratch.counts[0];
}

__global__ void __launch_bounds__(kHeadThreads)
    HeadReduceKernel(HeadTask* tasks, int64_t count, int32_t first_token) {
  __shared__ TileSums sums;
  __shared__ SelectScratch select;
  __shared__ Best warps[kHeadWarps];
  HeadTask& task = tasks[blockIdx.x];
  const float* logits = task.logits;
  const Best winner = BestOfBlock(FindWinner(logits, count, first_token, task), warps);
  ReduceSums(logits, count, task, sums);
  if (task.wanted == 1) {
    const Best best = BestOfBlock(FindBestLogit(logits, count, first_token), warps);
    if (Thread() == 0 && best.value > task.threshold) {
      task.candidates[0] = {best.token, best.logit};
      task.num_candidates = 1;
    }
  } else {
    FindCandidates(logits, count, first_token, task, select);
  }
  if (Thread() == 0 && winner.token >= 0) {
    task.best_noisy = winner.value;
    task.noisy_winner = winner.token;
    task.noisy_winner_logit = winner.logit;
  }
}

// AdjustLogit of kernels/ops.h, to the same bits.
__device__ float Adjusted(const LogitAdjustment& adjustment, float logit) {
  logit += adjustment.bias;
  logit = logit > 0.0F ? logit / adjustment.repetition : logit * adjustment.repetition;
  return logit - adjustment.penalty;
}

__global__ void __launch_bounds__(kHeadThreads)
    AdjustKernel(const AdjustTask* tasks, int64_t count, int32_t first_token) {
  const AdjustTask task = tasks[blockIdx.x];
  for (int64_t i = Thread(); i < count; i += kHeadThreads) {
    task.adjusted[i] = task.logits[i];
  }
  __syncthreads();
  for (int i = Thread(); i < task.num_adjustments; i += kHeadThreads) {
    const LogitAdjustment& adjustment = task.adjustments[i];
    float& logit = task.adjusted[adjustment.token - first_token];
    task.unadjusted[i] = logit;
    logit = Adjusted(adjustment, logit);
  }
}

}  // namespace

void LaunchHeadReduce(Launcher& launcher, HeadTask* tasks, int64_t num_tasks, int64_t count,
                      int32_t first_token) {
  launcher.Launch("HeadReduce", static_cast<unsigned int>(num_tasks), kHeadThreads,
                  HeadReduceKernel, tasks, count, first_token);
}

void LaunchAdjust(Launcher& launcher, const AdjustTask* tasks, int64_t num_tasks, int64_t count,
                  int32_t first_token) {
  launcher.Launch("AdjustLogits", static_cast<unsigned int>(num_tasks), kHeadThreads, AdjustKernel,
                  tasks, count, first_token);
}

}  // namespace nightshift::cuda
