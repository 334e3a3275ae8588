// Measurements of what a device computes, by the ops, with the shapes and in the memory that the
// engine calls them with. Each Add* appends measurements that fill their part of `rates`, which
// must outlive them and stay where it is.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "engine/policy/hardware_profile.h"
#include "engine/policy/measurement.h"
#include "kernels/base/clock.h"
#include "kernels/device.h"

namespace nightshift {

// Where probes work. Used by one thread; what it refers to outlives the measurements.
struct ProbeBench {
  Device& device;
  // What ops read as weights, keys and values: at another place in each call, so that no cache
  // holds it. At least kLeastProbeMemory, filled by FillProbeMemory.
  std::span<const std::byte> memory;
  std::span<std::byte> scratch;  // what they write; kProbeScratch, zeros, 64-byte aligned
  int64_t most_rows = 2048;      // of a matmul, and tokens of a prompt; a power of two up to this
};

inline constexpr int64_t kLeastProbeMemory = int64_t{64} << 20;
inline constexpr int64_t kProbeScratch = int64_t{160} << 20;

// Ordinary numbers whatever they are read as: f32, f16, bf16, or codes with their scales.
void FillProbeMemory(std::span<std::byte> memory, WorkerPool& workers);

// matmul_probes.cc. The shards of a layer, each compute type with each type of weights.
void AddMatmulProbes(const ProbeBench& bench, ComputeRates& rates,
                     std::vector<Measurement>& measurements);
// Expanding shards of stored weights to what ops read.
void AddUnpackProbes(const ProbeBench& bench, ComputeRates& rates,
                     std::vector<Measurement>& measurements);

// attention_probes.cc. Whole prompts; of long ones the last tokens.
void AddPromptAttentionProbes(const ProbeBench& bench, ComputeRates& rates,
                              std::vector<Measurement>& measurements);
// One token of each of several requests, by the device's ops or by the host's.
enum class AttentionBy : uint8_t { kDevice, kHost };
void AddDecodeAttentionProbes(const ProbeBench& bench, AttentionBy by, ComputeRates& rates,
                              std::vector<Measurement>& measurements);

// step_probes.cc. The ops between matmuls and attention; their spread goes to
// spreads["device.row_bytes_per_s"].
void AddRowProbes(const ProbeBench& bench, ComputeRates& rates,
                  std::map<std::string, double>& spreads, std::vector<Measurement>& measurements);
// What the ops of a layer and the lanes' fences cost when there is next to nothing to do: added to
// rates.step_seconds.
void AddStepProbes(const ProbeBench& bench, const Clock& clock, ComputeRates& rates,
                   std::vector<Measurement>& measurements);

}  // namespace nightshift
