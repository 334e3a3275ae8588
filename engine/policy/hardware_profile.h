// HardwareProfile: what a machine can do, measured (`nightshift calibrate`) or from published
// figures, as plain data and as JSON.
//
// Rates are per second and of the whole machine: all cores, the lanes' own queue depths. Curves
// give a rate by the size of one piece of work; between two points it is interpolated over the
// logarithm of the size, beyond the ends it stays.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

#include "engine/policy/profile_refinement.h"
#include "kernels/dtype.h"

namespace nightshift {

struct RatePoint {
  double size = 0.0;    // above 0, ascending over a curve
  double rate = 0.0;    // above 0
  double spread = 0.0;  // (largest - least) / median of the repetitions; 0: not measured
};

struct RateCurve {
  std::vector<RatePoint> points;

  bool empty() const { return points.empty(); }
  double At(double size) const;  // not on an empty curve
};

// A matmul's floating-point operations (2 a multiply-add) per second by the rows of its input.
struct MatmulRate {
  ComputeType compute = ComputeType::kBF16;
  DType weights = DType::kBF16;
  int64_t inputs = 4096;  // of the weights
  RateCurve flops;        // by rows
};

// Attention of decoding requests: bytes of keys and values that are read per second, by the number
// of positions before the token.
struct DecodeAttentionRate {
  ComputeType compute = ComputeType::kBF16;
  std::optional<DType> kv = {};  // of keys and values that are packed; nothing: as computed
  int64_t head_width = 0;
  int64_t queries_per_kv_head = 1;
  RateCurve bytes;  // as stored, by positions
};

// Attention of prompts: floating-point operations per second (4 * head width a query head and pair
// of positions, only pairs that causality allows), by the tokens of the prompt.
struct PromptAttentionRate {
  ComputeType compute = ComputeType::kBF16;
  int64_t head_width = 0;
  RateCurve flops;  // by tokens
};

struct UnpackRate {
  DType dtype = DType::kU4G64;
  double elements_per_s = 0.0;
  ComputeType compute = ComputeType::kBF16;  // whose form is written
};

// The arithmetic of a device, or of the host's cores where they attend beside one.
struct ComputeRates {
  std::vector<MatmulRate> matmul;
  std::vector<PromptAttentionRate> prompt_attention;
  std::vector<DecodeAttentionRate> decode_attention;
  std::vector<UnpackRate> unpack;  // of weights and of keys and values that are stored compressed
  // Of everything between matmuls and attention (norms, rotation, activations, residuals, gathers):
  // bytes of hidden rows read and written.
  double row_bytes_per_s = 0.0;
  double memory_bytes_per_s = 0.0;  // reading
  double step_seconds = 0.0;        // beside its work, of one step of a sweep
};

struct HardwareProfile {
  std::string name;         // "this machine", "t4"
  std::string source;       // who measured or published it, where
  std::string date;         // ISO 8601, of the measurement
  std::string fingerprint;  // of the machine; empty for shipped profiles
  bool unified_memory = true;
  // Usable bytes. With unified memory the host's are the device's and device_bytes is 0.
  int64_t device_bytes = 0;
  int64_t host_bytes = 0;
  int64_t disk_bytes = 0;

  RateCurve disk_read;           // bytes, by the bytes of one read at the lane's depth
  RateCurve disk_write;          // the same
  RateCurve disk_read_by_depth;  // bytes, by the reads of 1 MiB on their way together; may be empty
  // Between host and device, by the bytes of one copy; empty with unified memory.
  RateCurve upload;
  RateCurve download;
  double pageable_upload_bytes_per_s = 0.0;  // from memory that is not pinned; 0: not measured
  double pageable_download_bytes_per_s = 0.0;
  double copy_bytes_per_s = 0.0;  // memory to memory: bytes copied

  ComputeRates device;
  ComputeRates host;  // the same as `device` with unified memory: may be empty

  // Of the rates that are no curves, by their names in JSON ("copy_bytes_per_s",
  // "device.row_bytes_per_s"): as RatePoint::spread. May be empty.
  std::map<std::string, double> spreads;
  // What sweeps have shown since the measurement. No rate above contains it.
  ProfileRefinement refinement;
};

// OK when all that a plan needs is there, finite and in the range of machines (rates from 1 to 1e18
// a second, sizes of memory up to 2^53 bytes; overheads and free disk may be 0); else
// INVALID_ARGUMENT naming the field as in JSON, and its value.
absl::Status ValidateHardwareProfile(const HardwareProfile& profile);

// The same profile gives the same bytes. Parse refuses what it does not know or lacks, by name
// (INVALID_ARGUMENT); what it returns is valid. Texts above 1 MiB are refused unread.
std::string HardwareProfileToJson(const HardwareProfile& profile);
absl::StatusOr<HardwareProfile> HardwareProfileFromJson(absl::string_view text);

// A profile's refinement by itself, with what tells which measured rates it was learned beside.
// Parse refuses as HardwareProfileFromJson; FAILED_PRECONDITION when the rates are not `profile`'s.
std::string RefinementToJson(const HardwareProfile& profile);
absl::StatusOr<ProfileRefinement> RefinementFromJson(absl::string_view text,
                                                     const HardwareProfile& profile);

}  // namespace nightshift
