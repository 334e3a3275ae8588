// PlacementProgram: what a run costs as a linear function of where things lie, and the linear
// program that finds the best place. Pure.
//
// The nine shares say which part of the weights, of keys and values, and of activations lies on
// each tier. For one choice of block and batch everything else is linear in them: the time that a
// lane takes, the bytes that a tier holds. A phase of the run takes, each time, the sum of what
// nothing hides and the longest of what overlaps, so the least time is a linear program.
//
// Source: FlexGen (Sheng et al. 2023) section 4.3 and appendix A.2.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

#include "engine/schedule/tier.h"

namespace nightshift {

// Three for each of weights, keys and values, activations: device, host, disk.
enum class ShareId : uint8_t {
  kWeightsDevice,
  kWeightsHost,
  kWeightsDisk,
  kKvDevice,
  kKvHost,
  kKvDisk,
  kActivationsDevice,
  kActivationsHost,
  kActivationsDisk,
};
inline constexpr size_t kNumShares = 9;
using Shares = std::array<double, kNumShares>;  // each 0 to 1; each three sum to 1
const char* ShareName(ShareId share);           // "weights on the host"

// constant + sum of of[i] * share[i].
struct LinearForm {
  double constant = 0.0;
  std::array<double, kNumShares> of = {};

  double& operator[](ShareId share) { return of[static_cast<size_t>(share)]; }
  double operator[](ShareId share) const { return of[static_cast<size_t>(share)]; }
  double At(const Shares& shares) const;
  LinearForm& operator+=(const LinearForm& other);
  LinearForm& operator*=(double factor);
};

struct CostTerm {
  std::string name;  // of the lane or the transfer: "read", "compute"
  LinearForm seconds;
};

// A stretch of a run that is gone through `times` times.
struct CostPhase {
  std::string name;  // "prefill", "decode", "sweep"
  double times = 1.0;
  std::vector<CostTerm> serial;      // added up
  std::vector<CostTerm> overlapped;  // the longest counts
};

// What a tier holds at one time.
struct CapacityRow {
  Tier tier = Tier::kDevice;
  std::string name;  // "device, prefill"
  LinearForm bytes;
  double capacity_bytes = 0.0;
};

struct PlacementProgram {
  double requests = 1.0;  // that all phases together finish; seconds are counted per request
  std::vector<CostPhase> phases;
  std::vector<CapacityRow> capacities;
  std::array<std::optional<double>, kNumShares> fixed;  // by the user or by the device
  std::optional<double> max_seconds;                    // of all phases together
};

// Seconds of one phase, each time, and of a whole run at given shares.
double PhaseSeconds(const CostPhase& phase, const Shares& shares);
double TotalSeconds(const PlacementProgram& program, const Shares& shares);

struct PlacementSolution {
  Shares shares = {};
  double seconds = 0.0;                // of all phases together
  double seconds_per_request = 0.0;    // what was made least
  std::vector<double> phase_seconds;   // each time, by phase
  std::vector<double> capacity_bytes;  // held, by row of `capacities`
  // By row of `capacities`: seconds per request that one more byte would save; 0 where the row does
  // not bind.
  std::vector<double> byte_prices;
};

// The shares of least seconds per request; among equals those with least on disk, then least on the
// host. The same program gives the same answer.
// Errors: INVALID_ARGUMENT for numbers that are negative or not finite, by name;
// RESOURCE_EXHAUSTED when nothing fits: which row lacks how many bytes at the best shares.
absl::StatusOr<PlacementSolution> SolvePlacement(const PlacementProgram& program);

}  // namespace nightshift
