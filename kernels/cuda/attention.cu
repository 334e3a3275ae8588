#include "kernels/cuda/attention.h"

#include <cmath>

#include "kernels/cuda/attention_tile.cuh"

namespace nightshift::cuda {
namespace {

// Parts of a tile's weights that are added up on their own.
constexpr int kParts = 4;
constexpr int kPartKeys = kTile / kParts;

// How the threads of a block of kQueries queries share a tile: for scores each has kScoreQueries
// queries by kScoreKeys keys, for values kValueQueries queries by kValueWidth dimensions.
template <int kQueries>
struct Shape;
template <>
struct Shape<1> {
  static constexpr int kThreads = 64;
  static constexpr int kScoreQueries = 1;
  static constexpr int kScoreKeys = 1;
  static constexpr int kValueQueries = 1;
  static constexpr int kValueWidth = 1;
};
template <>
struct Shape<8> {
  static constexpr int kThreads = 128;
  static constexpr int kScoreQueries = 4;
  static constexpr int kScoreKeys = 1;
  static constexpr int kValueQueries = 1;
  static constexpr int kValueWidth = 4;
};
template <>
struct Shape<16> {
  static constexpr int kThreads = 128;
  static constexpr int kScoreQueries = 4;
  static constexpr int kScoreKeys = 2;
  static constexpr int kValueQueries = 2;
  static constexpr int kValueWidth = 4;
};
template <>
struct Shape<32> {
  static constexpr int kThreads = 128;
  static constexpr int kScoreQueries = 4;
  static constexpr int kScoreKeys = 4;
  static constexpr int kValueQueries = 4;
  static constexpr int kValueWidth = 4;
};

// A running result and that of one more tile, by the factors of both.
struct Merge {
  float max;
  float old_factor;
  float tile_factor;
};

__device__ Merge MergeOf(float max, float tile_max) {
  const float larger = tile_max > max ? tile_max : max;
  return {larger, expf(max - larger), expf(tile_max - larger)};
}

// Keys that a query sees.
struct SeenKeys {
  int64_t first;
  int64_t end;
};

__device__ int64_t GroupOf(const DeviceAttentionArgs& args) {
  return args.num_heads / args.layout.kv_heads;
}

__device__ SeenKeys SeenBy(const DeviceAttentionArgs& args, const QueryBlock& block, int query) {
  const int64_t row = (block.first_query + query) / GroupOf(args);
  const int64_t end = block.first_position + row + 1;
  const bool is_cut = args.window > 0 && args.window < end;
  return {is_cut ? end - args.window : 0, end};
}

__device__ int64_t QueryOffset(const DeviceAttentionArgs& args, const MatrixView& matrix,
                               const QueryBlock& block, int64_t head, int query) {
  const int64_t group = GroupOf(args);
  const int64_t index = block.first_query + query;
  return (block.first_row + index / group) * matrix.stride +
         (head * group + index % group) * args.layout.head_width;
}

// Tiles that are left lie as [tile of the block][kv head][query]: the maximum, the sum, then the
// values.
__device__ float* PartialOf(const DeviceAttentionArgs& args, const QueryBlock& block, int tile,
                            int64_t head, int query) {
  const int64_t index =
      ((tile - block.first_tile) * args.layout.kv_heads + head) * block.num_queries + query;
  return args.partials + (block.first_partial + index) * (args.layout.head_width + 2);
}

// A block takes a QueryBlock's queries for one kv head and walks over its tiles, or over a part.
template <int kQueries, int kSlabs>
class AttentionBlock {
 public:
  static constexpr int kThreads = Shape<kQueries>::kThreads;
  static constexpr int kQueryStride = kSlabs * kSlabWidth + kPadding;

  struct alignas(16) Shared {
    float q[kQueries * kQueryStride];
    float rows[kTile * kSlabStride];  // a slab of keys, then of values
    float weights[kQueries * kSlabStride];
    float part_max[kQueries * kParts];
    float part_sum[kQueries * kParts];
    float max[kQueries];
    float sum[kQueries];
    float old_factor[kQueries];
    float tile_factor[kQueries];
  };

  __device__ AttentionBlock(const DeviceAttentionArgs& args, const QueryBlock& block, int64_t head,
                            Shared& shared)
      : args_(args), block_(block), head_(head), shared_(shared) {}

  __device__ void Run(int part) {
    LoadQueries();
    const int tiles = block_.end_tile - block_.first_tile;
    const int first = block_.first_tile + tiles * part / block_.parts;
    const int end = block_.first_tile + tiles * (part + 1) / block_.parts;
    for (int tile = first; tile < end; ++tile) {
      Score(tile);
      Weigh(tile);
      AddValues(tile);
    }
    if (block_.parts == 1) StoreOut();
  }

 private:
  using S = Shape<kQueries>;
  static constexpr int kKeyGroups = kTile / S::kScoreKeys;
  static constexpr int kWidthGroups = kSlabWidth / S::kValueWidth;
  static_assert(kThreads / kKeyGroups * S::kScoreQueries == kQueries);
  static_assert(kThreads / kWidthGroups * S::kValueQueries == kQueries);
  static_assert(kParts * kQueries <= kThreads);

  __device__ static int thread() { return static_cast<int>(threadIdx.x); }
  __device__ int width() const { return static_cast<int>(args_.layout.head_width); }
  __device__ bool is_packed() const {
    return args_.layout.dtype == DType::kU4G64 || args_.layout.dtype == DType::kU8G64;
  }
  // Of the slab, in whole fours.
  __device__ int SlabWidth(int slab) const {
    return min(kSlabWidth, (width() - slab * kSlabWidth + 3) / 4 * 4);
  }

  __device__ void LoadQueries() {
    for (int i = thread(); i < kQueries * kSlabs * kSlabWidth; i += kThreads) {
      const int query = i / (kSlabs * kSlabWidth);
      const int d = i % (kSlabs * kSlabWidth);
      const bool is_real = query < block_.num_queries && d < width();
      shared_.q[query * kQueryStride + d] =
          is_real ? args_.q.data[QueryOffset(args_, args_.q, block_, head_, query) + d] : 0.0F;
    }
    if (thread() < kQueries) {
      shared_.max[thread()] = -INFINITY;
      shared_.sum[thread()] = 0.0F;
    }
    __syncthreads();
    if (is_packed()) {
      TransformRows<kThreads>(shared_.q, kQueries, kQueryStride, width(),
                              args_.layout.transform_block, args_.layout.query_factor);
    }
#pragma unroll
    for (int i = 0; i < S::kValueQueries * kSlabs * S::kValueWidth; ++i) {
      out_[i] = 0.0F;
    }
  }

  __device__ TilePages PagesOf(int tile, bool is_values) const {
    TilePages pages = {{nullptr, nullptr}, head_};
    const int64_t first = SeenBy(args_, block_, 0).first;
    const int64_t end = SeenBy(args_, block_, block_.num_queries - 1).end;
    for (int i = 0; i < 2; ++i) {
      const int64_t key = static_cast<int64_t>(tile) * kTile + i * kPage;
      if (key + kPage <= first || key >= end) continue;
      pages.planes[i] = args_.pages[block_.first_page + 2 * tile + i] +
                        (is_values ? args_.layout.plane_bytes : 0);
    }
    return pages;
  }

  __device__ void LoadSlab(const TilePages& pages, bool is_values, int slab) {
    __syncthreads();  // all are done with the slab before
    if (!is_packed()) {
      LoadFloatSlab<kThreads>(args_.layout, pages, slab, shared_.rows);
    } else if (is_values) {
      LoadValueCodes<kThreads>(args_.layout, pages, slab, shared_.rows);
    } else {
      LoadKeyCodes<kThreads>(args_.layout, pages, slab, shared_.rows);
    }
    __syncthreads();
  }

  // Raw scores of this thread's queries and keys, over d ascending.
  __device__ void Score(int tile) {
    const int first_query = thread() / kKeyGroups * S::kScoreQueries;
    const int key = thread() % kKeyGroups;
#pragma unroll
    for (int i = 0; i < S::kScoreQueries * S::kScoreKeys; ++i) {
      scores_[i] = 0.0F;
    }
    const TilePages pages = PagesOf(tile, false);
    for (int slab = 0; slab < kSlabs; ++slab) {
      LoadSlab(pages, false, slab);
      const float* q = shared_.q + first_query * kQueryStride + slab * kSlabWidth;
      const float* k = shared_.rows + key * kSlabStride;
      for (int d = 0; d < SlabWidth(slab); d += 4) {
        float4 keys[S::kScoreKeys];
#pragma unroll
        for (int j = 0; j < S::kScoreKeys; ++j) {
          keys[j] = *reinterpret_cast<const float4*>(k + j * kKeyGroups * kSlabStride + d);
        }
#pragma unroll
        for (int i = 0; i < S::kScoreQueries; ++i) {
          const float4 four = *reinterpret_cast<const float4*>(q + i * kQueryStride + d);
#pragma unroll
          for (int j = 0; j < S::kScoreKeys; ++j) {
            float& score = scores_[i * S::kScoreKeys + j];
            score = fmaf(four.x, keys[j].x, score);
            score = fmaf(four.y, keys[j].y, score);
            score = fmaf(four.z, keys[j].z, score);
            score = fmaf(four.w, keys[j].w, score);
          }
        }
      }
    }
  }

  // Calls body(score, query, key, is_seen) for this thread's scores.
  template <typename Body>
  __device__ void ForEachScore(int tile, const Body& body) {
    const int first_query = thread() / kKeyGroups * S::kScoreQueries;
#pragma unroll
    for (int i = 0; i < S::kScoreQueries; ++i) {
      const SeenKeys seen = SeenBy(args_, block_, first_query + i);
#pragma unroll
      for (int j = 0; j < S::kScoreKeys; ++j) {
        const int key = thread() % kKeyGroups + j * kKeyGroups;
        const int64_t position = static_cast<int64_t>(tile) * kTile + key;
        body(scores_[i * S::kScoreKeys + j], first_query + i, key,
             position >= seen.first && position < seen.end);
      }
    }
  }

  __device__ float TileMax(int query) const {
    const float* parts = shared_.part_max + query * kParts;
    return fmaxf(fmaxf(parts[0], parts[1]), fmaxf(parts[2], parts[3]));
  }

  // Scores to weights, exp(score - the tile's maximum), their sum, and the factors of the merge.
  __device__ void Weigh(int tile) {
    ForEachScore(tile, [&](float& score, int query, int key, bool is_seen) {
      score *= args_.scale;
      if (args_.softcap > 0.0F) score = SoftCapped(score, args_.softcap);
      if (!is_seen) score = -INFINITY;
      shared_.weights[query * kSlabStride + key] = score;
    });
    __syncthreads();
    const int query = thread() / kParts;
    // Threads beyond the queries have none: an address there is not to be made.
    const float* part = shared_.weights + min(query, kQueries - 1) * kSlabStride +
                        thread() % kParts * kPartKeys;
    if (query < kQueries) {
      float max = -INFINITY;
      for (int i = 0; i < kPartKeys; ++i) {
        max = fmaxf(max, part[i]);
      }
      shared_.part_max[thread()] = max;
    }
    __syncthreads();
    ForEachScore(tile, [&](float score, int of, int key, bool is_seen) {
      shared_.weights[of * kSlabStride + key] = is_seen ? expf(score - TileMax(of)) : 0.0F;
    });
    __syncthreads();
    if (query < kQueries) {
      float sum = 0.0F;
      for (int i = 0; i < kPartKeys; ++i) {
        sum += part[i];
      }
      shared_.part_sum[thread()] = sum;
    }
    __syncthreads();
    if (thread() < block_.num_queries) MergeSums(tile, thread());
  }

  __device__ bool SeesOf(int tile, int query) const {
    const SeenKeys seen = SeenBy(args_, block_, query);
    return seen.first < static_cast<int64_t>(tile + 1) * kTile &&
           seen.end > static_cast<int64_t>(tile) * kTile;
  }

  __device__ void MergeSums(int tile, int query) {
    const float* parts = shared_.part_sum + query * kParts;
    const float sum = (parts[0] + parts[1]) + (parts[2] + parts[3]);
    if (block_.parts > 1) {
      float* partial = PartialOf(args_, block_, tile, head_, query);
      partial[0] = TileMax(query);
      partial[1] = sum;
      return;
    }
    if (!SeesOf(tile, query)) return;
    const Merge merge = MergeOf(shared_.max[query], TileMax(query));
    shared_.max[query] = merge.max;
    shared_.sum[query] = shared_.sum[query] * merge.old_factor + sum * merge.tile_factor;
    shared_.old_factor[query] = merge.old_factor;
    shared_.tile_factor[query] = merge.tile_factor;
  }

  // The tile's values of this thread's queries and dimensions, over keys ascending, merged.
  __device__ void AddValues(int tile) {
    const int first_query = thread() / kWidthGroups * S::kValueQueries;
    const int d = thread() % kWidthGroups * S::kValueWidth;
    const TilePages pages = PagesOf(tile, true);
    const int64_t first_key = static_cast<int64_t>(tile) * kTile;
    const bool is_whole = SeenBy(args_, block_, 0).end >= first_key + kTile &&
                          SeenBy(args_, block_, block_.num_queries - 1).first <= first_key;
#pragma unroll
    for (int slab = 0; slab < kSlabs; ++slab) {
      LoadSlab(pages, true, slab);
      float tile_out[S::kValueQueries * S::kValueWidth] = {};
      if (is_whole) {
        SumValues<true>(first_key, first_query, d, tile_out);
      } else {
        SumValues<false>(first_key, first_query, d, tile_out);
      }
#pragma unroll
      for (int i = 0; i < S::kValueQueries; ++i) {
        const int query = first_query + i;
        if (query >= block_.num_queries) continue;
        MergeOut(tile, query, slab, d, tile_out + i * S::kValueWidth,
                 out_ + (i * kSlabs + slab) * S::kValueWidth);
      }
    }
  }

  template <bool kWhole>
  __device__ void SumValues(int64_t first_key, int first_query, int d, float* tile_out) {
    const float* weights = shared_.weights + first_query * kSlabStride;
    for (int key = 0; key < kTile; key += 4) {
      float values[4][S::kValueWidth];
#pragma unroll
      for (int j = 0; j < 4; ++j) {
#pragma unroll
        for (int n = 0; n < S::kValueWidth; ++n) {
          values[j][n] = shared_.rows[(key + j) * kSlabStride + d + n];
        }
      }
#pragma unroll
      for (int i = 0; i < S::kValueQueries; ++i) {
        const float4 four = *reinterpret_cast<const float4*>(weights + i * kSlabStride + key);
        const float factors[4] = {four.x, four.y, four.z, four.w};
        const SeenKeys seen = SeenBy(args_, block_, first_query + i);
#pragma unroll
        for (int j = 0; j < 4; ++j) {
          // What is not seen may be anything.
          const int64_t position = first_key + key + j;
          if (!kWhole && (position < seen.first || position >= seen.end)) continue;
#pragma unroll
          for (int n = 0; n < S::kValueWidth; ++n) {
            float& sum = tile_out[i * S::kValueWidth + n];
            sum = fmaf(factors[j], values[j][n], sum);
          }
        }
      }
    }
  }

  __device__ void MergeOut(int tile, int query, int slab, int d, const float* tile_out,
                           float* out) {
    if (block_.parts > 1) {
      float* partial = PartialOf(args_, block_, tile, head_, query) + 2 + slab * kSlabWidth + d;
      for (int n = 0; n < S::kValueWidth; ++n) {
        if (slab * kSlabWidth + d + n < width()) partial[n] = tile_out[n];
      }
      return;
    }
    if (!SeesOf(tile, query)) return;
#pragma unroll
    for (int n = 0; n < S::kValueWidth; ++n) {
      out[n] = fmaf(tile_out[n], shared_.tile_factor[query], out[n] * shared_.old_factor[query]);
    }
  }

  __device__ void StoreOut() {
    const int first_query = thread() / kWidthGroups * S::kValueQueries;
#pragma unroll
    for (int i = 0; i < S::kValueQueries; ++i) {
      const int query = first_query + i;
      if (query >= block_.num_queries) continue;
      float* out = args_.out.data + QueryOffset(args_, args_.out, block_, head_, query);
#pragma unroll
      for (int slab = 0; slab < kSlabs; ++slab) {
#pragma unroll
        for (int n = 0; n < S::kValueWidth; ++n) {
          const int d = slab * kSlabWidth + thread() % kWidthGroups * S::kValueWidth + n;
          if (d < width()) {
            out[d] = out_[(i * kSlabs + slab) * S::kValueWidth + n] / shared_.sum[query];
          }
        }
      }
    }
  }

  const DeviceAttentionArgs& args_;
  const QueryBlock& block_;
  const int64_t head_;
  Shared& shared_;
  float scores_[S::kScoreQueries * S::kScoreKeys];
  float out_[S::kValueQueries * kSlabs * S::kValueWidth];
};

// On one multiprocessor; more would leave too few registers for the sums.
[[maybe_unused]] constexpr int kBlocksAtOnce = 3;

template <int kQueries, int kSlabs>
__global__ void __launch_bounds__(Shape<kQueries>::kThreads, kBlocksAtOnce)
    AttentionKernel(DeviceAttentionArgs args) {
  using Block = AttentionBlock<kQueries, kSlabs>;
  __shared__ typename Block::Shared shared;
  const QueryBlock block = args.blocks[blockIdx.x];
  if (static_cast<int>(blockIdx.z) >= block.parts) return;
  Block(args, block, blockIdx.y, shared).Run(static_cast<int>(blockIdx.z));
}

constexpr int kMergeThreads = 64;

// Merges the tiles of one query that were left, in ascending order: a thread a dimension.
__global__ void __launch_bounds__(kMergeThreads) MergeTilesKernel(DeviceAttentionArgs args) {
  const QueryBlock block = args.blocks[blockIdx.x];
  const int64_t head = blockIdx.y;
  const int query = static_cast<int>(blockIdx.z);
  if (block.parts == 1 || query >= block.num_queries) return;
  const SeenKeys seen = SeenBy(args, block, query);
  float* target = args.out.data + QueryOffset(args, args.out, block, head, query);
  for (int64_t d = threadIdx.x; d < args.layout.head_width; d += kMergeThreads) {
    float max = -INFINITY;
    float sum = 0.0F;
    float out = 0.0F;
    for (int tile = block.first_tile; tile < block.end_tile; ++tile) {
      const int64_t first_key = static_cast<int64_t>(tile) * kTile;
      if (seen.first >= first_key + kTile || seen.end <= first_key) continue;
      const float* partial = PartialOf(args, block, tile, head, query);
      const Merge merge = MergeOf(max, partial[0]);
      max = merge.max;
      sum = sum * merge.old_factor + partial[1] * merge.tile_factor;
      out = fmaf(partial[2 + d], merge.tile_factor, out * merge.old_factor);
    }
    target[d] = out / sum;
  }
}

template <int kQueries, int kSlabs>
void Launch(Launcher& launcher, const dim3& blocks, const DeviceAttentionArgs& args) {
  launcher.Launch("Attention", blocks, Shape<kQueries>::kThreads, AttentionKernel<kQueries, kSlabs>,
                  args);
}

template <int kSlabs>
void LaunchSlabs(Launcher& launcher, int queries, const dim3& blocks,
                 const DeviceAttentionArgs& args) {
  if (queries == 1) return Launch<1, kSlabs>(launcher, blocks, args);
  if (queries == 8) return Launch<8, kSlabs>(launcher, blocks, args);
  // Queries of 256 dimensions fill shared memory twice as fast.
  Launch<kSlabs <= 2 ? 32 : 16, kSlabs>(launcher, blocks, args);
}

}  // namespace

void LaunchAttention(Launcher& launcher, const AttentionPlan& plan,
                     const DeviceAttentionArgs& args) {
  const auto num_blocks = static_cast<unsigned int>(plan.blocks.size());
  const auto heads = static_cast<unsigned int>(args.layout.kv_heads);
  const dim3 blocks(num_blocks, heads, static_cast<unsigned int>(plan.max_parts));
  if (args.layout.head_width <= kSlabWidth) {
    LaunchSlabs<1>(launcher, plan.queries, blocks, args);
  } else if (args.layout.head_width <= 2 * kSlabWidth) {
    LaunchSlabs<2>(launcher, plan.queries, blocks, args);
  } else {
    LaunchSlabs<4>(launcher, plan.queries, blocks, args);
  }
  if (plan.max_parts > 1) {
    launcher.Launch("MergeTiles", {num_blocks, heads, static_cast<unsigned int>(plan.queries)},
                    kMergeThreads, MergeTilesKernel, args);
  }
}

}  // namespace nightshift::cuda
