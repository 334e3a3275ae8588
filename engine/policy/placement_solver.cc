// SolvePlacement, LeastSecondsPerRequest and FindShortfall of placement_program.h.
#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

#include "engine/policy/linear_program.h"
#include "engine/policy/placement_program.h"
#include "engine/policy/quantity_text.h"
#include "kernels/base/status_macros.h"

namespace nightshift {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr size_t kTiers = 3;

// Units in which seconds are of the order of 1 at the solution: bytes are 1e12 and seconds 1e-6,
// the solver's tolerances are absolute.
struct Scale {
  std::vector<double> phase_seconds;  // each time
  double seconds = 1.0;               // of all phases together
};

// At most so many times the scale is taken from the last solution; each corrects it by orders of
// magnitude.
constexpr int kMaxScalings = 4;
constexpr double kFarOff = 16.0;
// The least scale, as a part of the largest value that can occur.
constexpr double kLeastScale = 1e-9;
// How much of the least seconds the choice among equals may cost.
constexpr double kEqualSeconds = 1e-8;
// Shares below are rounding, and 0.
constexpr double kLeastShare = 1e-8;

double Longest(const std::vector<CostTerm>& terms, double (LinearForm::*value)() const) {
  double longest = 0;
  for (const CostTerm& term : terms) {
    longest = std::max(longest, (term.seconds.*value)());
  }
  return longest;
}

double Sum(const std::vector<CostTerm>& terms, double (LinearForm::*value)() const) {
  double sum = 0;
  for (const CostTerm& term : terms) {
    sum += (term.seconds.*value)();
  }
  return sum;
}

double UnitOf(double expected, double largest) {
  const double unit = std::max(expected, kLeastScale * largest);
  return unit > 0 ? unit : 1.0;
}

// Where each phase takes `seconds` of it each time, `serial` among them.
template <typename Seconds, typename Serial>
Scale ScaleOf(const PlacementProgram& program, Seconds overlapped, Serial serial) {
  Scale scale;
  double expected = 0;
  double largest = 0;
  for (const CostPhase& phase : program.phases) {
    const double most = Longest(phase.overlapped, &LinearForm::Most);
    scale.phase_seconds.push_back(UnitOf(overlapped(phase), most));
    expected += phase.times * (overlapped(phase) + serial(phase));
    largest += phase.times * (most + Sum(phase.serial, &LinearForm::Most));
  }
  scale.seconds = UnitOf(expected, largest);
  return scale;
}

// No phase can take less.
Scale FirstScale(const PlacementProgram& program) {
  return ScaleOf(
      program, [](const CostPhase& phase) { return Longest(phase.overlapped, &LinearForm::Least); },
      [](const CostPhase& phase) { return Sum(phase.serial, &LinearForm::Least); });
}

Scale ScaleAt(const PlacementProgram& program, const Shares& shares) {
  const auto overlapped = [&](const CostPhase& phase) {
    double longest = 0;
    for (const CostTerm& term : phase.overlapped) {
      longest = std::max(longest, term.seconds.At(shares));
    }
    return longest;
  };
  return ScaleOf(program, overlapped, [&](const CostPhase& phase) {
    return PhaseSeconds(phase, shares) - overlapped(phase);
  });
}

bool IsFarOff(const Scale& scale, const Scale& right) {
  const auto far = [](double a, double b) { return a > kFarOff * b || b > kFarOff * a; };
  bool far_off = far(scale.seconds, right.seconds);
  for (size_t i = 0; i < scale.phase_seconds.size(); ++i) {
    far_off = far_off || far(scale.phase_seconds[i], right.phase_seconds[i]);
  }
  return far_off;
}

// The linear program of a placement: the nine shares, then for each phase the longest of what
// overlaps, in its unit.
class ScaledProgram {
 public:
  ScaledProgram(const PlacementProgram& program, Scale scale)
      : program_(program), scale_(std::move(scale)) {
    linear_.cost.assign(kNumShares + program.phases.size(), 0.0);
    linear_.least.assign(linear_.num_columns(), 0.0);
    linear_.most.assign(linear_.num_columns(), kInfinity);
    AddShares();
    AddPhases();
    AddCapacities();
    seconds_ = SecondsRow();
    AddTimeBounds();
    linear_.cost = seconds_.of;
  }

  absl::StatusOr<std::optional<LinearSolution>> Solve() const { return SolveLinear(linear_); }

  // From now on: seconds stay, something else is made least.
  void HoldSeconds(double seconds) {
    LinearRow row = seconds_;
    row.most = seconds * (1 + kEqualSeconds) / scale_.seconds - seconds_constant_;
    linear_.rows.push_back(std::move(row));
  }
  void Minimise(const std::array<double, kNumShares>& cost) {
    linear_.cost.assign(linear_.num_columns(), 0.0);
    std::copy(cost.begin(), cost.end(), linear_.cost.begin());
  }
  void HoldCost(double most) {
    linear_.rows.push_back({linear_.cost, -kInfinity, most + kLinearTolerance});
  }

  // Seconds per request and byte, from a solution that made seconds least.
  double BytePrice(const LinearSolution& solution, size_t capacity_row) const {
    const double price = -solution.row_prices[first_capacity_ + capacity_row];
    if (price <= kLinearTolerance) {
      return 0;
    }
    return price * scale_.seconds / ByteUnit(program_.capacities[capacity_row]) / program_.requests;
  }

 private:
  LinearRow EmptyRow() const {
    return {std::vector<double>(linear_.num_columns(), 0.0), -kInfinity, kInfinity};
  }
  static void AddForm(const LinearForm& form, double unit, LinearRow& row) {
    for (size_t i = 0; i < kNumShares; ++i) {
      row.of[i] += form.of[i] / unit;
    }
  }
  static double ByteUnit(const CapacityRow& row) {
    return UnitOf(row.capacity_bytes, 1e3 * row.bytes.Most());
  }

  void AddShares() {
    for (size_t i = 0; i < kNumShares; ++i) {
      linear_.least[i] = program_.fixed[i].value_or(0.0);
      linear_.most[i] = program_.fixed[i].value_or(1.0);
    }
    for (size_t group = 0; group < kNumShares; group += kTiers) {
      LinearRow row = EmptyRow();
      std::fill_n(row.of.begin() + static_cast<ptrdiff_t>(group), kTiers, 1.0);
      row.least = row.most = 1.0;
      linear_.rows.push_back(std::move(row));
    }
  }

  // No term of a phase takes longer than its column says.
  void AddPhases() {
    for (size_t i = 0; i < program_.phases.size(); ++i) {
      const double unit = scale_.phase_seconds[i];
      for (const CostTerm& term : program_.phases[i].overlapped) {
        LinearRow row = EmptyRow();
        AddForm(term.seconds, unit, row);
        row.of[kNumShares + i] = -1.0;
        row.most = -term.seconds.constant / unit;
        linear_.rows.push_back(std::move(row));
      }
    }
  }

  void AddCapacities() {
    first_capacity_ = linear_.rows.size();
    for (const CapacityRow& capacity : program_.capacities) {
      const double unit = ByteUnit(capacity);
      LinearRow row = EmptyRow();
      AddForm(capacity.bytes, unit, row);
      row.most = (capacity.capacity_bytes - capacity.bytes.constant) / unit;
      linear_.rows.push_back(std::move(row));
    }
  }

  LinearRow SecondsRow() {
    LinearRow row = EmptyRow();
    for (size_t i = 0; i < program_.phases.size(); ++i) {
      const CostPhase& phase = program_.phases[i];
      row.of[kNumShares + i] = phase.times * scale_.phase_seconds[i] / scale_.seconds;
      for (const CostTerm& term : phase.serial) {
        if (phase.times > 0) {
          AddForm(term.seconds, scale_.seconds / phase.times, row);
        }
        seconds_constant_ += phase.times * term.seconds.constant / scale_.seconds;
      }
    }
    return row;
  }

  void AddTimeBounds() {
    double most = kInfinity;
    if (program_.max_seconds) {
      most = *program_.max_seconds;
    }
    if (program_.max_held_seconds) {
      most = std::min(most, *program_.max_held_seconds / program_.held_share);
    }
    if (most < kInfinity) {
      LinearRow row = seconds_;
      row.most = most / scale_.seconds - seconds_constant_;
      linear_.rows.push_back(std::move(row));
    }
  }

  const PlacementProgram& program_;
  const Scale scale_;
  LinearProgram linear_;
  LinearRow seconds_;              // of all phases, in the scale's unit, without the constant
  double seconds_constant_ = 0.0;  // in that unit
  size_t first_capacity_ = 0;
};

// Rounding taken off: what is nearly 0 is 0, and each three sum to 1.
Shares SharesOf(const PlacementProgram& program, const std::vector<double>& columns) {
  Shares shares;
  for (size_t group = 0; group < kNumShares; group += kTiers) {
    double sum = 0;
    size_t largest = kNumShares;
    for (size_t i = group; i < group + kTiers; ++i) {
      const double share = std::clamp(columns[i], 0.0, 1.0);
      shares[i] = program.fixed[i].value_or(share < kLeastShare ? 0.0 : share);
      sum += shares[i];
      if (!program.fixed[i] && (largest == kNumShares || shares[i] > shares[largest])) {
        largest = i;
      }
    }
    if (largest < kNumShares) {
      shares[largest] = std::clamp(shares[largest] + 1 - sum, 0.0, 1.0);
    }
  }
  return shares;
}

struct LeastSeconds {
  ScaledProgram scaled;
  LinearSolution solution;
  Shares shares;
};

absl::StatusOr<std::optional<LeastSeconds>> MinimiseSeconds(const PlacementProgram& program) {
  Scale scale = FirstScale(program);
  for (int scalings = 1;; ++scalings) {
    ScaledProgram scaled(program, scale);
    ASSIGN_OR_RETURN(std::optional<LinearSolution> solution, scaled.Solve());
    if (!solution) {
      return std::optional<LeastSeconds>();
    }
    const Shares shares = SharesOf(program, solution->columns);
    Scale right = ScaleAt(program, shares);
    if (scalings == kMaxScalings || !IsFarOff(scale, right)) {
      return std::optional<LeastSeconds>({std::move(scaled), *std::move(solution), shares});
    }
    scale = std::move(right);
  }
}

// What a share of each kind takes of a tier, of the order of 1.
std::array<double, kNumShares> TakenOf(const PlacementProgram& program, Tier tier) {
  constexpr double kLeastWeight = 1e-3;
  std::array<double, kNumShares> taken = {};
  double largest = 0;
  for (const CapacityRow& row : program.capacities) {
    for (size_t i = static_cast<size_t>(tier); row.tier == tier && i < kNumShares; i += kTiers) {
      taken[i] = std::max(taken[i], row.bytes.of[i]);
      largest = std::max(largest, taken[i]);
    }
  }
  for (size_t i = static_cast<size_t>(tier); i < kNumShares; i += kTiers) {
    taken[i] = largest > 0 ? std::max(taken[i] / largest, kLeastWeight) : 1.0;
  }
  return taken;
}

double Dot(const std::array<double, kNumShares>& a, const Shares& b) {
  double sum = 0;
  for (size_t i = 0; i < kNumShares; ++i) {
    sum += a[i] * b[i];
  }
  return sum;
}

// Among shares of the same seconds those with least on disk, of these with least on the host.
absl::StatusOr<Shares> ChooseAmongEquals(const PlacementProgram& program, LeastSeconds& least) {
  Shares shares = least.shares;
  least.scaled.HoldSeconds(TotalSeconds(program, shares));
  for (const Tier tier : {Tier::kDisk, Tier::kHost}) {
    const std::array<double, kNumShares> taken = TakenOf(program, tier);
    least.scaled.Minimise(taken);
    if (Dot(taken, shares) > 0) {
      ASSIGN_OR_RETURN(const std::optional<LinearSolution> solution, least.scaled.Solve());
      if (solution) {
        shares = SharesOf(program, solution->columns);
      }
    }
    least.scaled.HoldCost(Dot(taken, shares));
  }
  return shares;
}

// The program of least lack: the nine shares, then what each tier lacks.
LinearProgram LackProgram(const PlacementProgram& program, double unit) {
  // A byte of disk is lacking before one of host memory before one of the device.
  constexpr std::array<double, kTiers> kPrices = {256, 16, 1};
  constexpr size_t kColumns = kNumShares + kTiers;
  LinearProgram linear;
  linear.cost.assign(kColumns, 0.0);
  std::copy(kPrices.begin(), kPrices.end(), linear.cost.begin() + kNumShares);
  linear.least.assign(kColumns, 0.0);
  linear.most.assign(kColumns, kInfinity);
  for (size_t i = 0; i < kNumShares; ++i) {
    linear.least[i] = program.fixed[i].value_or(0.0);
    linear.most[i] = program.fixed[i].value_or(1.0);
  }
  for (size_t group = 0; group < kNumShares; group += kTiers) {
    LinearRow row = {std::vector<double>(kColumns, 0.0), 1.0, 1.0};
    std::fill_n(row.of.begin() + static_cast<ptrdiff_t>(group), kTiers, 1.0);
    linear.rows.push_back(std::move(row));
  }
  for (const CapacityRow& capacity : program.capacities) {
    LinearRow row = {std::vector<double>(kColumns, 0.0), -kInfinity,
                     (capacity.capacity_bytes - capacity.bytes.constant) / unit};
    for (size_t i = 0; i < kNumShares; ++i) {
      row.of[i] = capacity.bytes.of[i] / unit;
    }
    row.of[kNumShares + static_cast<size_t>(capacity.tier)] = -1.0;
    linear.rows.push_back(std::move(row));
  }
  return linear;
}

absl::Status FindLackingBytes(const PlacementProgram& program, PlacementShortfall& shortfall) {
  double unit = 1.0;
  for (const CapacityRow& row : program.capacities) {
    unit = std::max(unit, row.bytes.Most());
  }
  ASSIGN_OR_RETURN(const std::optional<LinearSolution> solution,
                   SolveLinear(LackProgram(program, unit)));
  if (!solution) {
    return absl::InternalError("a placement without bounds on memory has no solution");
  }
  const Shares shares = SharesOf(program, solution->columns);
  for (const CapacityRow& row : program.capacities) {
    const auto tier = static_cast<size_t>(row.tier);
    const double bytes = row.bytes.At(shares) - row.capacity_bytes;
    if (bytes > 10 * kLinearTolerance * unit && bytes > shortfall.bytes[tier]) {
      shortfall.bytes[tier] = bytes;
      shortfall.rows[tier] = absl::StrCat(row.name, ": ", BytesText(row.bytes.At(shares)), " of ",
                                          BytesText(row.capacity_bytes));
    }
  }
  return absl::OkStatus();
}

std::string ShortfallText(const PlacementShortfall& shortfall) {
  constexpr std::array<const char*, kTiers> kNames = {"the device", "the host", "the disk"};
  std::vector<std::string> lacks;
  for (size_t tier = 0; tier < kTiers; ++tier) {
    if (shortfall.bytes[tier] > 0) {
      lacks.push_back(absl::StrCat(kNames[tier], " lacks ", BytesText(shortfall.bytes[tier]), " (",
                                   shortfall.rows[tier], ")"));
    }
  }
  return absl::StrJoin(lacks, ", ");
}

absl::Status NothingFits(const PlacementProgram& program) {
  ASSIGN_OR_RETURN(const PlacementShortfall shortfall, FindShortfall(program));
  if (shortfall.lacks_bytes()) {
    return absl::ResourceExhaustedError(
        absl::StrCat("no placement fits: ", ShortfallText(shortfall)));
  }
  std::string text = "no placement is fast enough:";
  if (program.max_seconds) {
    absl::StrAppend(&text, " all takes at least ", DurationText(shortfall.least_seconds), " of ",
                    DurationText(*program.max_seconds));
  }
  if (program.max_held_seconds) {
    absl::StrAppend(&text, " a request takes at least ", DurationText(shortfall.least_held_seconds),
                    " of ", DurationText(*program.max_held_seconds));
  }
  return absl::ResourceExhaustedError(text);
}

}  // namespace

absl::StatusOr<PlacementSolution> SolvePlacement(const PlacementProgram& program) {
  RETURN_IF_ERROR(ValidateProgram(program));
  ASSIGN_OR_RETURN(std::optional<LeastSeconds> least, MinimiseSeconds(program));
  if (!least) {
    return NothingFits(program);
  }
  PlacementSolution solution;
  for (size_t i = 0; i < program.capacities.size(); ++i) {
    solution.byte_prices.push_back(least->scaled.BytePrice(least->solution, i));
  }
  ASSIGN_OR_RETURN(solution.shares, ChooseAmongEquals(program, *least));
  solution.seconds = TotalSeconds(program, solution.shares);
  solution.seconds_per_request = solution.seconds / program.requests;
  for (const CostPhase& phase : program.phases) {
    solution.phase_seconds.push_back(PhaseSeconds(phase, solution.shares));
  }
  for (const CapacityRow& row : program.capacities) {
    solution.capacity_bytes.push_back(row.bytes.At(solution.shares));
  }
  return solution;
}

absl::StatusOr<double> LeastSecondsPerRequest(const PlacementProgram& program) {
  RETURN_IF_ERROR(ValidateProgram(program));
  ASSIGN_OR_RETURN(const std::optional<LeastSeconds> least, MinimiseSeconds(program));
  if (!least) {
    return absl::ResourceExhaustedError("no placement fits");
  }
  return TotalSeconds(program, least->shares) / program.requests;
}

absl::StatusOr<PlacementShortfall> FindShortfall(const PlacementProgram& program) {
  PlacementShortfall shortfall;
  ASSIGN_OR_RETURN(const std::optional<LeastSeconds> bounded, MinimiseSeconds(program));
  if (bounded) {
    return shortfall;
  }
  RETURN_IF_ERROR(FindLackingBytes(program, shortfall));
  if (!shortfall.lacks_bytes()) {
    PlacementProgram unbounded = program;
    unbounded.max_seconds.reset();
    unbounded.max_held_seconds.reset();
    ASSIGN_OR_RETURN(const std::optional<LeastSeconds> least, MinimiseSeconds(unbounded));
    if (least) {
      shortfall.least_seconds = TotalSeconds(program, least->shares);
      shortfall.least_held_seconds = shortfall.least_seconds * program.held_share;
    }
  }
  return shortfall;
}

}  // namespace nightshift
