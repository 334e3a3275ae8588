#include "engine/policy/discrete_form.h"

#include <algorithm>

namespace nightshift {
namespace {

void Cap(double rate, RateCurve& curve) {
  for (RatePoint& point : curve.points) {
    point.rate = std::min(point.rate, rate);
  }
}

RateCurve Link(double copy_bytes_per_s, double cap) {
  const double rate = cap > 0.0 ? std::min(cap, copy_bytes_per_s) : copy_bytes_per_s;
  return {.points = {{.size = 1 << 20, .rate = rate}}};
}

}  // namespace

HardwareProfile DiscreteForm(const HardwareProfile& profile, const TierOptions& tiers) {
  HardwareProfile discrete = profile;
  discrete.unified_memory = false;
  discrete.device_bytes = tiers.device_budget_bytes;
  discrete.upload = Link(profile.copy_bytes_per_s, tiers.upload_bytes_per_s);
  discrete.download = Link(profile.copy_bytes_per_s, tiers.download_bytes_per_s);
  discrete.pageable_upload_bytes_per_s = discrete.upload.points[0].rate;
  discrete.pageable_download_bytes_per_s = discrete.download.points[0].rate;
  discrete.host = profile.device;
  const double flops = tiers.device_flops_per_s;
  if (flops <= 0.0) {
    return discrete;
  }
  for (MatmulRate& rate : discrete.device.matmul) {
    Cap(flops, rate.flops);
  }
  for (PromptAttentionRate& rate : discrete.device.prompt_attention) {
    Cap(flops, rate.flops);
  }
  for (DecodeAttentionRate& rate : discrete.device.decode_attention) {
    // A query head does 4 operations with each pair of a key's and a value's numbers.
    const DType computed = ComputedDType(rate.compute);
    const double bytes_a_pair = 2.0 * StoredBits(rate.kv.value_or(computed)) / 8.0;
    Cap(flops * bytes_a_pair / (4.0 * static_cast<double>(rate.queries_per_kv_head)), rate.bytes);
  }
  return discrete;
}

}  // namespace nightshift
