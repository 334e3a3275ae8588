#include "engine/policy/work_rates.h"

#include <algorithm>
#include <cmath>
#include <optional>
#include <vector>

#include "kernels/base/check.h"
#include "kernels/group_format.h"

namespace nightshift {
namespace {

// The disk's queue cuts what it is asked for into pieces of this size.
constexpr double kDiskPieceBytes = 1 << 20;

// The entry of the least distance, the first among equals; null when there is none.
template <typename Entry, typename Distance>
const Entry* Nearest(const std::vector<Entry>& entries, const Distance& distance) {
  const Entry* nearest = nullptr;
  for (const Entry& entry : entries) {
    if (nearest == nullptr || distance(entry) < distance(*nearest)) {
      nearest = &entry;
    }
  }
  return nearest;
}

// How many doublings lie between two sizes.
double Doublings(int64_t a, int64_t b) {
  return std::abs(std::log2(static_cast<double>(std::max<int64_t>(a, 1))) -
                  std::log2(static_cast<double>(std::max<int64_t>(b, 1))));
}

// Beyond any number of doublings.
constexpr double kOtherKind = 1000.0;
constexpr double kNearKind = 500.0;
constexpr double kOtherWeights = 100.0;
constexpr double kOtherGroups = 50.0;  // of as many bits

double OtherWeights(DType a, DType b) {
  if (a == b) {
    return 0.0;
  }
  const std::optional<GroupFormat> of_a = GroupFormatOf(a);
  const std::optional<GroupFormat> of_b = GroupFormatOf(b);
  return of_a && of_b && of_a->bits == of_b->bits ? kOtherGroups : kOtherWeights;
}

}  // namespace

WorkRates::WorkRates(const HardwareProfile& profile, ComputeType compute_type)
    : profile_(profile), compute_type_(compute_type) {
  for (size_t i = 0; i < kNumLanes; ++i) {
    factors_[i] = profile.refinement.Factor(static_cast<LaneId>(i));
  }
}

double WorkRates::MatmulSeconds(DType loaded, int64_t inputs, double flops, double rows) const {
  const ComputeType compute = IsFloat(loaded) ? FloatComputeType(compute_type_) : compute_type_;
  const MatmulRate* nearest = Nearest(profile_.device.matmul, [&](const MatmulRate& entry) {
    // A profile without products of bytes says what those of floats take.
    const bool is_near = entry.compute == FloatComputeType(compute);
    return (entry.compute == compute ? 0.0 : is_near ? kNearKind : kOtherKind) +
           OtherWeights(entry.weights, loaded) + Doublings(entry.inputs, inputs);
  });
  CHECK(nearest != nullptr);
  // Where no groups were multiplied, they are unpacked for each matmul.
  const double unpacking = !IsFloat(loaded) && IsFloat(nearest->weights)
                               ? UnpackSeconds(loaded, flops / (2.0 * std::max(rows, 1.0)))
                               : 0.0;
  const double rate = nearest->flops.At(std::max(rows, 1.0));
  // The nearest on the other side of `inputs`.
  const MatmulRate* other = nullptr;
  for (const MatmulRate& entry : profile_.device.matmul) {
    if (entry.compute == nearest->compute && entry.weights == nearest->weights &&
        (entry.inputs > inputs) != (nearest->inputs > inputs) && nearest->inputs != inputs &&
        (other == nullptr || Doublings(entry.inputs, inputs) < Doublings(other->inputs, inputs))) {
      other = &entry;
    }
  }
  if (other == nullptr) {
    return unpacking + FactorOf(LaneId::kCompute) * flops / rate;
  }
  const double way = Doublings(nearest->inputs, inputs) / Doublings(nearest->inputs, other->inputs);
  return unpacking + FactorOf(LaneId::kCompute) * flops /
                         std::lerp(rate, other->flops.At(std::max(rows, 1.0)), way);
}

double WorkRates::PromptAttentionSeconds(int64_t head_width, double flops, double tokens) const {
  const PromptAttentionRate* rate =
      Nearest(profile_.device.prompt_attention, [&](const PromptAttentionRate& entry) {
        return (entry.compute == FloatComputeType(compute_type_) ? 0.0 : kOtherKind) +
               Doublings(entry.head_width, head_width);
      });
  CHECK(rate != nullptr);
  return FactorOf(LaneId::kCompute) * flops / rate->flops.At(std::max(tokens, 1.0));
}

const ComputeRates& WorkRates::RatesOf(bool on_host) const {
  return on_host && !profile_.host.decode_attention.empty() ? profile_.host : profile_.device;
}

bool WorkRates::AttendsTo(DType kv, bool on_host) const {
  return IsFloat(kv) || std::ranges::any_of(RatesOf(on_host).decode_attention,
                                            [&](const auto& entry) { return entry.kv == kv; });
}

double WorkRates::DecodeAttentionSeconds(const DecodeAttention& work) const {
  const bool attends = AttendsTo(work.kv, work.on_host);
  const std::optional<DType> kv =
      attends && !IsFloat(work.kv) ? std::optional<DType>(work.kv) : std::nullopt;
  const DecodeAttentionRate* rate =
      Nearest(RatesOf(work.on_host).decode_attention, [&](const DecodeAttentionRate& entry) {
        return (entry.kv == kv ? 0.0 : 2.0 * kOtherKind) +
               (entry.compute == FloatComputeType(compute_type_) ? 0.0 : kOtherKind) +
               2.0 * Doublings(entry.head_width, work.head_width) +
               Doublings(entry.queries_per_kv_head, work.queries_per_kv_head);
      });
  CHECK(rate != nullptr);
  const LaneId lane = work.on_host ? LaneId::kHostAttention : LaneId::kCompute;
  const double bytes = work.elements * StoredBits(work.kv) / 8.0;
  const double unpacking = attends ? 0.0 : UnpackSeconds(work.kv, work.elements);
  return unpacking + FactorOf(lane) * bytes / rate->bytes.At(std::max(work.positions, 1.0));
}

double WorkRates::UnpackSeconds(DType stored, double elements) const {
  const UnpackRate* rate = Nearest(profile_.device.unpack, [&](const UnpackRate& entry) {
    return (entry.dtype == stored ? 0.0 : 1.0) + (entry.compute == FloatComputeType(compute_type_) ? 0.0 : 0.5);
  });
  const double factor = FactorOf(LaneId::kCompute);
  if (rate != nullptr) {
    return factor * elements / rate->elements_per_s;
  }
  // Reading what is stored and writing 2 bytes an element, at the memory's rate.
  const double bytes = elements * (StoredBits(stored) / 8.0 + 2.0);
  return factor * bytes /
         std::max(profile_.device.memory_bytes_per_s, profile_.device.row_bytes_per_s);
}

double WorkRates::TransferSeconds(LaneId lane, double bytes, double piece_bytes) const {
  const double refined = FactorOf(lane) * bytes;
  switch (lane) {
    case LaneId::kRead:
      return refined / profile_.disk_read.At(std::min(piece_bytes, kDiskPieceBytes));
    case LaneId::kWrite:
      return refined / profile_.disk_write.At(std::min(piece_bytes, kDiskPieceBytes));
    case LaneId::kUpload:
      return profile_.unified_memory ? 0.0 : refined / profile_.upload.At(piece_bytes);
    case LaneId::kDownload:
      return profile_.unified_memory ? 0.0 : refined / profile_.download.At(piece_bytes);
    case LaneId::kCompute:
    case LaneId::kHostAttention:
      break;
  }
  CHECK(false);
  return 0.0;
}

}  // namespace nightshift
