#include "engine/policy/placement_program.h"

#include <algorithm>
#include <cmath>

#include "absl/strings/str_cat.h"

#include "kernels/base/status_macros.h"

namespace nightshift {
namespace {

constexpr size_t kTiers = 3;

// What rounding may take from a sum that is 0, as a part of its largest summand.
constexpr double kRounding = 1e-9;

// Adds for each of weights, keys and values, activations what `choose` takes of the three tiers.
template <typename Choose>
double OverGroups(const LinearForm& form, Choose choose) {
  double sum = form.constant;
  for (size_t i = 0; i < kNumShares; i += kTiers) {
    sum += choose({form.of[i], form.of[i + 1], form.of[i + 2]});
  }
  return sum;
}

absl::Status CheckForm(const LinearForm& form, const std::string& name, const char* unit) {
  double largest = std::abs(form.constant);
  bool finite = std::isfinite(form.constant);
  for (const double coefficient : form.of) {
    finite = finite && std::isfinite(coefficient);
    largest = std::max(largest, std::abs(coefficient));
  }
  if (!finite) {
    return absl::InvalidArgumentError(absl::StrCat(name, ": a number is not finite"));
  }
  if (form.Least() < -kRounding * largest) {
    return absl::InvalidArgumentError(
        absl::StrCat(name, ": ", form.Least(), " ", unit, " at some shares, must be at least 0"));
  }
  return absl::OkStatus();
}

absl::Status CheckNumber(double value, bool good, const std::string& name, const char* what) {
  if (std::isfinite(value) && good) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(absl::StrCat(name, " is ", value, ", must be ", what));
}

absl::Status CheckPhase(const CostPhase& phase) {
  RETURN_IF_ERROR(CheckNumber(phase.times, phase.times >= 0, absl::StrCat(phase.name, ": times"),
                              "at least 0"));
  for (const std::vector<CostTerm>* terms : {&phase.serial, &phase.overlapped}) {
    for (const CostTerm& term : *terms) {
      RETURN_IF_ERROR(
          CheckForm(term.seconds, absl::StrCat(phase.name, ", ", term.name), "seconds"));
    }
  }
  return absl::OkStatus();
}

absl::Status CheckFixed(const PlacementProgram& program) {
  for (size_t group = 0; group < kNumShares; group += kTiers) {
    double sum = 0;
    size_t num_fixed = 0;
    for (size_t i = group; i < group + kTiers; ++i) {
      if (const std::optional<double>& share = program.fixed[i]) {
        RETURN_IF_ERROR(CheckNumber(*share, *share >= 0 && *share <= 1,
                                    absl::StrCat("the share of ", ShareName(ShareId(i))),
                                    "0 to 1"));
        sum += *share;
        ++num_fixed;
      }
    }
    const bool wrong = sum > 1 + kRounding || (num_fixed == kTiers && sum < 1 - kRounding);
    if (wrong) {
      return absl::InvalidArgumentError(absl::StrCat("the shares from ", ShareName(ShareId(group)),
                                                     " on are fixed to a sum of ", sum,
                                                     ", must be 1"));
    }
  }
  return absl::OkStatus();
}

}  // namespace

const char* ShareName(ShareId share) {
  switch (share) {
    case ShareId::kWeightsDevice:
      return "weights on the device";
    case ShareId::kWeightsHost:
      return "weights on the host";
    case ShareId::kWeightsDisk:
      return "weights on disk";
    case ShareId::kKvDevice:
      return "keys and values on the device";
    case ShareId::kKvHost:
      return "keys and values on the host";
    case ShareId::kKvDisk:
      return "keys and values on disk";
    case ShareId::kActivationsDevice:
      return "activations on the device";
    case ShareId::kActivationsHost:
      return "activations on the host";
    case ShareId::kActivationsDisk:
      return "activations on disk";
  }
  return "unknown";
}

double LinearForm::At(const Shares& shares) const {
  double sum = constant;
  for (size_t i = 0; i < kNumShares; ++i) {
    sum += of[i] * shares[i];
  }
  return sum;
}

double LinearForm::Least() const {
  return OverGroups(*this, [](std::initializer_list<double> tiers) { return std::min(tiers); });
}

double LinearForm::Most() const {
  return OverGroups(*this, [](std::initializer_list<double> tiers) { return std::max(tiers); });
}

LinearForm& LinearForm::operator+=(const LinearForm& other) {
  constant += other.constant;
  for (size_t i = 0; i < kNumShares; ++i) {
    of[i] += other.of[i];
  }
  return *this;
}

LinearForm& LinearForm::operator*=(double factor) {
  constant *= factor;
  for (double& coefficient : of) {
    coefficient *= factor;
  }
  return *this;
}

double PhaseSeconds(const CostPhase& phase, const Shares& shares) {
  double longest = 0;
  for (const CostTerm& term : phase.overlapped) {
    longest = std::max(longest, term.seconds.At(shares));
  }
  for (const CostTerm& term : phase.serial) {
    longest += term.seconds.At(shares);
  }
  return longest;
}

double TotalSeconds(const PlacementProgram& program, const Shares& shares) {
  double seconds = 0;
  for (const CostPhase& phase : program.phases) {
    seconds += phase.times * PhaseSeconds(phase, shares);
  }
  return seconds;
}

absl::Status ValidateProgram(const PlacementProgram& program) {
  RETURN_IF_ERROR(
      CheckNumber(program.requests, program.requests > 0, "the number of requests", "above 0"));
  RETURN_IF_ERROR(CheckNumber(program.held_share, program.held_share > 0 && program.held_share <= 1,
                              "the part for which a request is held", "above 0, at most 1"));
  for (const CostPhase& phase : program.phases) {
    RETURN_IF_ERROR(CheckPhase(phase));
  }
  for (const CapacityRow& row : program.capacities) {
    RETURN_IF_ERROR(CheckForm(row.bytes, row.name, "bytes"));
    RETURN_IF_ERROR(CheckNumber(row.capacity_bytes, row.capacity_bytes >= 0,
                                absl::StrCat(row.name, ": the capacity"), "at least 0"));
  }
  for (const std::optional<double>& bound : {program.max_seconds, program.max_held_seconds}) {
    if (bound) {
      RETURN_IF_ERROR(CheckNumber(*bound, *bound > 0, "a bound on seconds", "above 0"));
    }
  }
  return CheckFixed(program);
}

}  // namespace nightshift
