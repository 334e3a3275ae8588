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

#include "absl/status/status.h"
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
  // Over all shares that there are.
  double Least() const;
  double Most() const;
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
  // Of the seconds of all phases, the part for which one request is held: 1 when the phases are one
  // closed block.
  double held_share = 1.0;
  std::vector<CostPhase> phases;
  std::vector<CapacityRow> capacities;
  std::array<std::optional<double>, kNumShares> fixed;  // by the user or by the device
  std::optional<double> max_seconds;                    // of all phases together
  std::optional<double> max_held_seconds;               // of one request
};

// Seconds of one phase, each time, and of a whole run at given shares.
double PhaseSeconds(const CostPhase& phase, const Shares& shares);
double TotalSeconds(const PlacementProgram& program, const Shares& shares);

struct PlacementSolution {
  Shares shares = {};
  double seconds = 0.0;                // of all phases together
  double seconds_per_request = 0.0;    // what was made least
  std::vector<double> phase_seconds;   // each time, by phase
  std::vector<double> capacity_bytes;  // held, by row of `capacities`; within 1e-6 of what it may
  // By row of `capacities`: seconds per request that one more byte would save; 0 where the row does
  // not bind.
  std::vector<double> byte_prices;
};

// What a program lacks.
struct PlacementShortfall {
  // By tier: bytes beyond its capacity, and the row that holds most of them. Disk is asked for
  // before host, host before device.
  std::array<double, 3> bytes = {};
  std::array<std::string, 3> rows;
  // When no bytes are lacking: the least seconds, which are above a bound.
  double least_seconds = 0.0;
  double least_held_seconds = 0.0;

  bool lacks_bytes() const { return bytes[0] > 0 || bytes[1] > 0 || bytes[2] > 0; }
};

// OK when all numbers are finite, and no time or memory can be below 0 at any shares; else
// INVALID_ARGUMENT naming the phase and term, row or share, and the number.
absl::Status ValidateProgram(const PlacementProgram& program);

// The shares of least seconds per request; among equals those with least on disk, then least on the
// host. The same program gives the same answer.
// Errors: of ValidateProgram; RESOURCE_EXHAUSTED when nothing fits: which tier lacks how many bytes
// in which row, or by how much a bound on time is missed.
absl::StatusOr<PlacementSolution> SolvePlacement(const PlacementProgram& program);

// Only the objective: a third of the work. Errors: as SolvePlacement, but the message of
// RESOURCE_EXHAUSTED tells nothing.
absl::StatusOr<double> LeastSecondsPerRequest(const PlacementProgram& program);

// Of a valid program. All 0 when it has a solution.
absl::StatusOr<PlacementShortfall> FindShortfall(const PlacementProgram& program);

}  // namespace nightshift
