// WorkRates: seconds that a machine takes for each kind of work, from its profile: what was
// measured, times what sweeps have shown of each lane since (HardwareProfile::refinement). Pure.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "engine/policy/hardware_profile.h"
#include "engine/schedule/sweep_steps.h"
#include "kernels/dtype.h"

namespace nightshift {

// What was not measured as asked for is taken from the nearest that was: of a matmul another type
// of weights (of integer groups those of as many bits, else floats, and unpacking them), of
// attention another width of heads. Keys and values that are packed, where no attention to them was
// measured, are expanded first and then attended to as they are computed. Between two numbers of inputs of a matmul the
// rate is interpolated over the logarithm.
class WorkRates {
 public:
  // The profile is valid and outlives this.
  WorkRates(const HardwareProfile& profile, ComputeType compute_type);

  // `flops` by `rows` rows, with weights of about so many inputs that lie in memory as `loaded`.
  double MatmulSeconds(DType loaded, int64_t inputs, double flops, double rows) const;
  // `flops` as PromptAttentionRate counts them, of queries that end at position `tokens`.
  double PromptAttentionSeconds(int64_t head_width, double flops, double tokens) const;
  // All keys and values of `positions` positions, by the device or by the host beside it.
  struct DecodeAttention {
    int64_t head_width = 0;
    int64_t queries_per_kv_head = 1;
    DType kv = DType::kBF16;  // as stored
    double elements = 0.0;    // of keys and values
    double positions = 0.0;
    bool on_host = false;
  };
  double DecodeAttentionSeconds(const DecodeAttention& work) const;
  double UnpackSeconds(DType stored, double elements) const;
  // Whether attention reads keys and values of this type as they are stored.
  bool AttendsTo(DType kv, bool on_host) const;
  // Of work between matmuls: bytes of hidden rows read and written.
  double RowSeconds(double bytes) const {
    return FactorOf(LaneId::kCompute) * bytes / profile_.device.row_bytes_per_s;
  }
  double step_seconds() const { return FactorOf(LaneId::kCompute) * profile_.device.step_seconds; }
  // `bytes` in transfers of `piece_bytes`; not of the lanes that compute.
  double TransferSeconds(LaneId lane, double bytes, double piece_bytes) const;

 private:
  const ComputeRates& RatesOf(bool on_host) const;
  double FactorOf(LaneId lane) const { return factors_[static_cast<size_t>(lane)]; }

  const HardwareProfile& profile_;
  const ComputeType compute_type_;
  std::array<double, kNumLanes> factors_ = {};
};

}  // namespace nightshift
