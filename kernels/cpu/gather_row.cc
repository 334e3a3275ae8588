#include "kernels/cpu/gather_row.h"

#include <algorithm>
#include <cstring>

#include "kernels/convert.h"
#include "kernels/group_format.h"
#include "kernels/panel_layout.h"

namespace nightshift::cpu {
namespace {

// Pairs of inputs lie in lines of their own, a stride that caches do not fetch ahead of.
constexpr int64_t kPairsAhead = 24;

float Widen(float value, DType) {
  return value;
}

float Widen(uint16_t bits, DType type) {
  return type == DType::kBF16 ? BF16ToF32(bits) : F16ToF32(bits);
}

float HalfAt(const std::byte* source) {
  uint16_t bits = 0;
  std::memcpy(&bits, source, sizeof(bits));
  return F16ToF32(bits);
}

// Output n of the shard.
template <typename T>
void GatherFloats(const WeightShardView& shard, int64_t n, bool accumulate, float* out) {
  constexpr int64_t kPairBytes = 2 * kPanelOutputs * static_cast<int64_t>(sizeof(T));
  const std::byte* source =
      shard.data + PanelOffset(n, 0, shard.padded_inputs()) * static_cast<int64_t>(sizeof(T));
  for (int64_t k = 0; k < shard.inputs; k += 2, source += kPairBytes) {
    __builtin_prefetch(source + kPairsAhead * kPairBytes);
    T pair[2];
    std::memcpy(pair, source, sizeof(pair));
    const int64_t count = std::min<int64_t>(2, shard.inputs - k);
    for (int64_t i = 0; i < count; ++i) {
      const float value = Widen(pair[i], shard.dtype);
      out[k + i] = accumulate ? out[k + i] + value : value;
    }
  }
}

int CodeAt(const GroupFormat& format, const std::byte* pair, int64_t k) {
  if (format.bits == 4) {
    return (std::to_integer<int>(*pair) >> (k % 2 * 4) & 15) - format.zero;
  }
  const int code = std::to_integer<int>(pair[k % 2]);
  return format.has_minimum ? code : static_cast<int8_t>(code);
}

// The same of integer groups.
void GatherGroups(const WeightShardView& shard, int64_t n, const GatherRowArgs& args) {
  const GroupFormat format = *GroupFormatOf(shard.dtype);
  const PanelPlanes planes = PlanesOf(shard.dtype, shard.inputs);
  const std::byte* panel = shard.data + n / kPanelOutputs * planes.bytes;
  const int64_t output = n % kPanelOutputs;
  const int64_t pair_bytes = kPanelOutputs * format.bits / 4;
  const std::byte* codes = panel + output * format.bits / 4;
  for (int64_t first = 0; first < shard.inputs; first += format.group) {
    const int64_t number = (first / format.group * kPanelOutputs + output) * 2;
    const float scale = HalfAt(panel + planes.scales + number);
    const float minimum = format.has_minimum ? HalfAt(panel + planes.minimums + number) : 0.0F;
    const int64_t end = std::min(first + format.group, shard.inputs);
    for (int64_t k = first; k < end; ++k) {
      const std::byte* pair = codes + k / 2 * pair_bytes;
      __builtin_prefetch(pair + kPairsAhead * pair_bytes);
      const float product = static_cast<float>(CodeAt(format, pair, k)) * scale;
      float value = format.has_minimum ? product + minimum : product;
      value = args.rounds ? BF16ToF32(F32ToBF16(value)) : value;
      args.out[k] = args.accumulate ? args.out[k] + value : value;
    }
  }
}

}  // namespace

void GatherRow(const GatherRowArgs& args) {
  const std::span<const WeightShardView> shards = args.table.shards;
  const auto after = std::upper_bound(
      shards.begin(), shards.end(), args.id,
      [](int64_t row, const WeightShardView& shard) { return row < shard.first_output; });
  if (after == shards.begin() || !(after - 1)->Has(args.id)) {
    return;
  }
  const WeightShardView& shard = *(after - 1);
  const int64_t n = args.id - shard.first_output;
  if (!IsFloat(shard.dtype)) {
    GatherGroups(shard, n, args);
  } else if (shard.dtype == DType::kF32) {
    GatherFloats<float>(shard, n, args.accumulate, args.out);
  } else {
    GatherFloats<uint16_t>(shard, n, args.accumulate, args.out);
  }
}

}  // namespace nightshift::cpu
