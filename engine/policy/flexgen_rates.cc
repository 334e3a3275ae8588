#include "engine/policy/flexgen_rates.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <vector>

namespace nightshift {
namespace {

constexpr double kTransferBytes = 4 << 20;
constexpr double kPromptRows = 2048;
constexpr double kDecodeRows = 64;
// Of what takes no time.
constexpr double kFree = 1e18;

double RateAt(const RateCurve& curve, double size) {
  return curve.empty() ? kFree : curve.At(size);
}

// The measured entry that `distance` finds nearest, nullptr without any.
template <typename Entry, typename Distance>
const Entry* Nearest(const std::vector<Entry>& entries, const Distance& distance) {
  const auto nearest =
      std::min_element(entries.begin(), entries.end(),
                       [&](const Entry& a, const Entry& b) { return distance(a) < distance(b); });
  return nearest == entries.end() ? nullptr : &*nearest;
}

double OtherCompute(ComputeType compute) {
  return compute == ComputeType::kBF16 ? 0 : 1e6;
}

double MatmulFlops(const ComputeRates& rates, double rows) {
  const MatmulRate* matmul = Nearest(rates.matmul, [](const MatmulRate& rate) {
    return OtherCompute(rate.compute) + (rate.weights == DType::kBF16 ? 0 : 1) +
           1.0 / static_cast<double>(rate.inputs);  // models of its time are wide
  });
  return matmul == nullptr ? kFree : RateAt(matmul->flops, rows);
}

double PromptAttentionFlops(const ComputeRates& rates, int64_t head_width, double tokens) {
  const PromptAttentionRate* attention =
      Nearest(rates.prompt_attention, [&](const PromptAttentionRate& rate) {
        return OtherCompute(rate.compute) +
               static_cast<double>(std::abs(rate.head_width - head_width));
      });
  return attention == nullptr ? kFree : RateAt(attention->flops, tokens);
}

double DecodeAttentionBytes(const ComputeRates& rates, int64_t head_width, int64_t queries,
                            double positions) {
  const DecodeAttentionRate* attention =
      Nearest(rates.decode_attention, [&](const DecodeAttentionRate& rate) {
        return OtherCompute(rate.compute) + (rate.kv ? 1e9 : 0.0) +
               static_cast<double>(std::abs(rate.head_width - head_width) +
                                   std::abs(rate.queries_per_kv_head - queries));
      });
  return attention == nullptr ? kFree : RateAt(attention->bytes, positions);
}

double UnpackedElements(const ComputeRates& rates) {
  const UnpackRate* unpack = Nearest(
      rates.unpack, [](const UnpackRate& rate) { return rate.dtype == DType::kU4G64 ? 0.0 : 1.0; });
  return unpack == nullptr ? kFree : unpack->elements_per_s;
}

}  // namespace

FlexGenRates FlexGenRatesOf(const HardwareProfile& hardware, const FlexGenShape& shape,
                            int64_t prompt_tokens) {
  const int64_t head_width = shape.attention_width / std::max<int64_t>(1, shape.heads);
  const int64_t queries = shape.attention_width / std::max<int64_t>(1, shape.kv_width);
  const auto tokens = static_cast<double>(prompt_tokens);
  const ComputeRates& host = hardware.unified_memory ? hardware.device : hardware.host;
  const double download = RateAt(hardware.download, kTransferBytes);
  const double write = RateAt(hardware.disk_write, kTransferBytes);
  return {.upload = RateAt(hardware.upload, kTransferBytes),
          .download_kv = download,
          .download_activations = download,
          .read = RateAt(hardware.disk_read, kTransferBytes),
          .write_prompt_kv = write,
          .write_prompt_activations = write,
          .write_decode = write,
          .prompt_matmul = MatmulFlops(hardware.device, kPromptRows),
          .decode_matmul = MatmulFlops(hardware.device, kDecodeRows),
          .prompt_attention = 2 * PromptAttentionFlops(hardware.device, head_width, tokens),
          .decode_attention = DecodeAttentionBytes(hardware.device, head_width, queries, tokens),
          .host_attention = DecodeAttentionBytes(host, head_width, queries, tokens),
          .unpacked_elements = UnpackedElements(hardware.device)};
}

std::array<double, 3> TierBytesOf(const HardwareProfile& hardware) {
  const auto host = static_cast<double>(hardware.host_bytes);
  return {hardware.unified_memory ? host : static_cast<double>(hardware.device_bytes), host,
          static_cast<double>(hardware.disk_bytes)};
}

}  // namespace nightshift
