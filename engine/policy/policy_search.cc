#include "engine/policy/policy_search.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <utility>

#include "absl/strings/str_cat.h"

#include "kernels/base/status_macros.h"

namespace nightshift {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr int64_t kMaxRequests = int64_t{1} << 31;
constexpr size_t kMaxOfAKind = 16;  // of types and chunks
// Times nearer than this are equal.
constexpr double kEqual = 1e-7;
// Bytes on disk likewise: a placement may leave some by rounding.
constexpr double kEqualBytes = 1e-6;
// Between batches, and between blocks, that are scanned.
constexpr int64_t kBatchFactor = 4;
constexpr int64_t kBlockFactor = 2;
// Between two blocks of which one fits: the edge to 1/64 of their distance.
constexpr int kBisections = 6;
// Kinds that take so many times as long as the best one are not refined: that gains a few per cent.
constexpr double kRefined = 1.5;
// Starts of the refinement of one kind, and its steps, as factors.
constexpr size_t kStarts = 2;
constexpr double kSteps[] = {1.7, 1.3, 1.1, 1.03, 1.01};

// What a choice is but for its sizes.
struct Kind {
  DType weights;
  DType kv;
  bool host_attention;
  int64_t chunk_tokens;
};

struct Sizes {
  int64_t block = 1;
  int64_t batch = 1;

  auto operator<=>(const Sizes&) const = default;
};

struct Sized {
  Sizes sizes;
  double seconds = kInfinity;  // per request
};

bool IsBetter(const Sized& a, const Sized& b) {
  if (a.seconds < b.seconds * (1 - kEqual) || b.seconds == kInfinity) {
    return a.seconds < b.seconds;
  }
  return a.seconds <= b.seconds * (1 + kEqual) && a.sizes > b.sizes;
}

int64_t CeilDivide(int64_t a, int64_t b) {
  return (a + b - 1) / b;
}

absl::Status CheckRange(const char* name, double value, double low, double high) {
  if (value >= low && value <= high) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(
      absl::StrCat(name, " is ", value, ", must be ", low, " to ", high));
}

class Search {
 public:
  Search(const CostModel& model, const SearchSpace& space) : model_(model), space_(space) {
    for (const DType weights : space.weights) {
      for (const DType kv : space.kv) {
        for (const bool host_attention : {false, true}) {
          for (const int64_t chunk : space.chunk_tokens) {
            if (!space.host_attention || *space.host_attention == host_attention) {
              kinds_.push_back({weights, kv, host_attention, chunk});
            }
          }
        }
      }
    }
    times_.resize(kinds_.size());
    best_.resize(kinds_.size());
  }

  // Of one kind.
  absl::StatusOr<SearchResult> RunNear(Sizes start) {
    Refine(0, {{start, Seconds(0, start)}});
    RETURN_IF_ERROR(fatal_);
    if (best_[0].seconds == kInfinity) {
      return NothingFits();
    }
    SearchResult result;
    ASSIGN_OR_RETURN(result.best, LeastOnDisk(0));
    result.num_programs = num_programs_;
    return result;
  }

  absl::StatusOr<SearchResult> Run(bool with_alternatives) {
    std::vector<std::vector<Sized>> starts;
    for (size_t kind = 0; kind < kinds_.size(); ++kind) {
      starts.push_back(Scan(kind));
    }
    const auto all = [](const Kind&) { return true; };
    const size_t best = BestOf(all);
    for (size_t kind = 0; kind < kinds_.size() && best < kinds_.size(); ++kind) {
      if (best_[kind].seconds <= kRefined * best_[best].seconds) {
        Refine(kind, starts[kind]);
      }
    }
    RETURN_IF_ERROR(fatal_);
    const size_t chosen = BestOf(all);
    if (chosen == kinds_.size()) {
      return NothingFits();
    }
    SearchResult result;
    ASSIGN_OR_RETURN(result.best, LeastOnDisk(chosen));
    if (with_alternatives) {
      AddOtherKinds(chosen, result.alternatives);
      AddOtherSizes(chosen, result.alternatives);
      RETURN_IF_ERROR(fatal_);
    }
    result.num_programs = num_programs_;
    return result;
  }

 private:
  BlockChoice ChoiceOf(size_t kind, Sizes sizes) const {
    return {.block_requests = sizes.block,
            .batch_requests = sizes.batch,
            .chunk_tokens = kinds_[kind].chunk_tokens,
            .weights = kinds_[kind].weights,
            .kv = kinds_[kind].kv,
            .host_attention = kinds_[kind].host_attention};
  }

  bool IsAllowed(Sizes sizes) const {
    return sizes.batch >= 1 && sizes.batch <= sizes.block && sizes.block <= space_.requests &&
           sizes.block == space_.block_requests.value_or(sizes.block) &&
           sizes.batch == space_.batch_requests.value_or(sizes.batch);
  }

  // Batches of a block are equal but for rounding: a small last one would cost what the others do.
  Sizes Equalised(Sizes sizes) const {
    if (!space_.batch_requests && sizes.batch >= 1 && sizes.block >= sizes.batch) {
      sizes.batch = CeilDivide(sizes.block, CeilDivide(sizes.block, sizes.batch));
    }
    return sizes;
  }

  // Seconds per request; infinity when the model cannot describe it, or nothing fits.
  double Seconds(size_t kind, Sizes sizes) {
    if (!IsAllowed(sizes)) {
      return kInfinity;
    }
    const auto [known, is_new] = times_[kind].try_emplace(sizes, kInfinity);
    if (!is_new) {
      return known->second;
    }
    const auto program = ProgramOf(model_, space_, ChoiceOf(kind, sizes));
    if (!program.ok()) {
      refusal_ = refusal_.ok() ? program.status() : refusal_;
      return kInfinity;
    }
    ++num_programs_;
    const auto seconds = LeastSecondsPerRequest(*program);
    if (seconds.ok()) {
      known->second = *seconds;
      best_[kind] = std::min(best_[kind], Sized{sizes, *seconds}, IsBetter);
    } else if (!absl::IsResourceExhausted(seconds.status()) && fatal_.ok()) {
      fatal_ = seconds.status();
    }
    return known->second;
  }

  // `first`, each `factor` times the one before, and `last`.
  static std::vector<int64_t> Series(int64_t first, int64_t last, int64_t factor) {
    std::vector<int64_t> values;
    for (int64_t value = first; value < last; value *= factor) {
      values.push_back(value);
    }
    if (first <= last) {
      values.push_back(last);
    }
    return values;
  }

  // The best of each batch, best first.
  std::vector<Sized> Scan(size_t kind) {
    const bool bounded = space_.deadline_seconds || space_.max_held_seconds;
    const int64_t most = space_.block_requests.value_or(space_.requests);
    std::vector<Sized> best;
    for (const int64_t batch : space_.batch_requests ? std::vector{*space_.batch_requests}
                                                     : Series(1, most, kBatchFactor)) {
      const Sized of_batch = ScanBlocks(kind, batch, most, bounded);
      // Larger ones hold more, so they do not fit either; but they can be in time.
      if (of_batch.seconds == kInfinity && !bounded) {
        break;
      }
      best.push_back(of_batch);
    }
    std::stable_sort(best.begin(), best.end(),
                     [](const Sized& a, const Sized& b) { return a.seconds < b.seconds; });
    return best;
  }

  Sized ScanBlocks(size_t kind, int64_t batch, int64_t most, bool bounded) {
    Sized best;
    Sized before;
    for (const int64_t block : space_.block_requests ? std::vector{*space_.block_requests}
                                                     : Series(batch, most, kBlockFactor)) {
      const Sizes sizes = Equalised({block, batch});
      const Sized now = {sizes, Seconds(kind, sizes)};
      best = std::min(best, now, IsBetter);
      const bool edge = (now.seconds == kInfinity) != (before.seconds == kInfinity);
      const bool is_best = std::max(before.seconds, now.seconds) == kInfinity &&
                           std::min(before.seconds, now.seconds) <= best.seconds;
      if (edge && is_best && block > batch) {
        best = std::min(best, Bisect(kind, before, now), IsBetter);
      }
      if (now.seconds == kInfinity && !bounded) {
        break;
      }
      before = now;
    }
    return best;
  }

  // Between a block that fits and one that does not: the best of those that are met on the way to
  // the edge.
  Sized Bisect(size_t kind, Sized low, Sized high) {
    Sized best = std::min(low, high, IsBetter);
    for (int i = 0; i < kBisections && high.sizes.block - low.sizes.block > 1; ++i) {
      Sized middle = {
          {low.sizes.block + (high.sizes.block - low.sizes.block) / 2, low.sizes.batch}};
      middle.seconds = Seconds(kind, middle.sizes);
      best = std::min(best, middle, IsBetter);
      const bool as_low = (middle.seconds == kInfinity) == (low.seconds == kInfinity);
      (as_low ? low : high) = middle;
    }
    return best;
  }

  void Refine(size_t kind, const std::vector<Sized>& starts) {
    for (size_t i = 0; i < std::min(kStarts, starts.size()); ++i) {
      Sized now = starts[i];
      for (const double step : kSteps) {
        while (now.seconds < kInfinity && Improve(kind, step, now)) {
        }
      }
    }
  }

  // Takes the best neighbour if that is better.
  bool Improve(size_t kind, double step, Sized& now) {
    Sized best = now;
    for (const Sizes neighbour : Neighbours(now.sizes, step)) {
      const Sizes sizes = Equalised(neighbour);
      best = std::min(best, Sized{sizes, Seconds(kind, sizes)}, IsBetter);
    }
    const bool is_better = IsBetter(best, now);
    now = best;
    return is_better;
  }

  std::vector<Sizes> Neighbours(Sizes sizes, double step) const {
    const auto up = [&](int64_t size) {
      const auto real = static_cast<double>(size);
      return std::max(size + 1, static_cast<int64_t>(std::round(real * step)));
    };
    const auto down = [&](int64_t size) {
      const auto real = static_cast<double>(size);
      return std::min(size - 1, static_cast<int64_t>(std::round(real / step)));
    };
    const auto [block, batch] = sizes;
    const int64_t batches = CeilDivide(block, batch);
    const int64_t blocks = CeilDivide(space_.requests, block);
    return {{up(block), batch},
            {down(block), batch},
            {block, up(batch)},
            {block, down(batch)},
            {up(block), up(batch)},
            {down(block), down(batch)},
            // Equal batches, and equal blocks of a job.
            {block, CeilDivide(block, batches)},
            {batch * batches, batch},
            {CeilDivide(space_.requests, blocks), batch},
            {CeilDivide(space_.requests, blocks + 1), batch},
            {CeilDivide(space_.requests, std::max<int64_t>(1, blocks - 1)), batch}};
  }

  // The kind of the best choice among those that `may_be`; num kinds when none fits.
  template <typename MayBe>
  size_t BestOf(MayBe may_be) const {
    size_t best = kinds_.size();
    for (size_t kind = 0; kind < kinds_.size(); ++kind) {
      if (may_be(kinds_[kind]) && best_[kind].seconds < kInfinity &&
          (best == kinds_.size() || best_[kind].seconds < best_[best].seconds * (1 - kEqual))) {
        best = kind;
      }
    }
    return best;
  }

  absl::StatusOr<SolvedChoice> Solve(const BlockChoice& choice) {
    SolvedChoice solved{.choice = choice, .program = {}, .solution = {}};
    ASSIGN_OR_RETURN(solved.program, ProgramOf(model_, space_, choice));
    ++num_programs_;
    ASSIGN_OR_RETURN(solved.solution, SolvePlacement(solved.program));
    return solved;
  }

  static double DiskBytes(const SolvedChoice& solved) {
    double bytes = 0;
    for (size_t i = 0; i < solved.program.capacities.size(); ++i) {
      if (solved.program.capacities[i].tier == Tier::kDisk) {
        bytes = std::max(bytes, solved.solution.capacity_bytes[i]);
      }
    }
    return bytes;
  }

  // Of the sizes of least time the one that takes least of the disk, of those the largest block.
  absl::StatusOr<SolvedChoice> LeastOnDisk(size_t kind) {
    std::map<int64_t, int64_t> batches;  // by block, the largest
    for (const auto& [sizes, seconds] : times_[kind]) {
      if (seconds <= best_[kind].seconds * (1 + kEqual)) {
        batches[sizes.block] = sizes.batch;
      }
    }
    std::optional<SolvedChoice> best;
    for (const auto& [block, batch] : batches) {
      ASSIGN_OR_RETURN(SolvedChoice solved, Solve(ChoiceOf(kind, {block, batch})));
      if (!best || DiskBytes(solved) <= DiskBytes(*best) * (1 + kEqualBytes)) {
        best_[kind].sizes = {block, batch};
        best = std::move(solved);
      }
    }
    return *std::move(best);
  }

  void Add(std::string what, const BlockChoice& choice, std::vector<Alternative>& alternatives) {
    alternatives.push_back({std::move(what), choice, Solve(choice)});
  }

  // The best of those kinds; where none fits the least of the first of them, which tells why.
  template <typename MayBe>
  void AddKind(std::string what, MayBe may_be, std::vector<Alternative>& alternatives) {
    const size_t kind = BestOf(may_be);
    if (kind < kinds_.size()) {
      Add(std::move(what), ChoiceOf(kind, best_[kind].sizes), alternatives);
      return;
    }
    for (size_t i = 0; i < kinds_.size(); ++i) {
      if (may_be(kinds_[i])) {
        Add(std::move(what), ChoiceOf(i, LeastSizes()), alternatives);
        return;
      }
    }
  }

  void AddOtherKinds(size_t chosen, std::vector<Alternative>& alternatives) {
    const Kind& best = kinds_[chosen];
    for (const DType weights : space_.weights) {
      if (weights != best.weights) {
        AddKind(
            absl::StrCat("weights in ", DTypeName(weights)),
            [&](const Kind& kind) { return kind.weights == weights; }, alternatives);
      }
    }
    for (const DType kv : space_.kv) {
      if (kv != best.kv) {
        AddKind(
            absl::StrCat("keys and values in ", DTypeName(kv)),
            [&](const Kind& kind) { return kind.kv == kv; }, alternatives);
      }
    }
    if (!space_.host_attention) {
      AddKind(
          best.host_attention ? "attention on the device" : "attention on the host",
          [&](const Kind& kind) { return kind.host_attention != best.host_attention; },
          alternatives);
    }
    for (const int64_t chunk : space_.chunk_tokens) {
      if (chunk != best.chunk_tokens) {
        AddKind(
            chunk == 0 ? "whole prompts" : absl::StrCat("prompt chunks of ", chunk),
            [&](const Kind& kind) { return kind.chunk_tokens == chunk; }, alternatives);
      }
    }
  }

  void AddOtherSizes(size_t kind, std::vector<Alternative>& alternatives) {
    const Sizes best = best_[kind].sizes;
    for (const int64_t block : {best.block / 2, best.block * 2}) {
      const Sizes sizes = Equalised({block, std::min(best.batch, block)});
      if (IsAllowed(sizes)) {
        Add(absl::StrCat("a block of ", block), ChoiceOf(kind, sizes), alternatives);
      }
    }
    for (const int64_t batch : {best.batch / 2, best.batch * 2}) {
      const Sizes sizes = Equalised({best.block, std::min(batch, best.block)});
      if (IsAllowed(sizes) && sizes.batch != best.batch) {
        Add(absl::StrCat("batches of ", sizes.batch), ChoiceOf(kind, sizes), alternatives);
      }
    }
  }

  Sizes LeastSizes() const {
    const int64_t batch = space_.batch_requests.value_or(1);
    return {space_.block_requests.value_or(batch), batch};
  }

  // What the kind that lacks least lacks with the least block; or how far the fastest is from the
  // bounds on time.
  absl::Status NothingFits() {
    absl::Status least = refusal_;
    double lacking = kInfinity;
    for (size_t kind = 0; kind < kinds_.size(); ++kind) {
      const BlockChoice choice = ChoiceOf(kind, LeastSizes());
      auto program = ProgramOf(model_, space_, choice);
      if (!program.ok()) {
        continue;
      }
      ASSIGN_OR_RETURN(const PlacementShortfall shortfall, FindShortfall(*program));
      if (!shortfall.lacks_bytes()) {
        return TooSlow();
      }
      const double bytes = shortfall.bytes[0] + shortfall.bytes[1] + shortfall.bytes[2];
      if (bytes < lacking) {
        lacking = bytes;
        least = Solve(choice).status();
      }
    }
    return least;
  }

  // Memory suffices, so a bound on time is missed: by the fastest choice, or for the bound on one
  // request by that of one request.
  absl::Status TooSlow() {
    double least_held = kInfinity;
    absl::Status slow;
    for (size_t kind = 0; space_.max_held_seconds && kind < kinds_.size(); ++kind) {
      const BlockChoice choice = ChoiceOf(kind, LeastSizes());
      const auto program = ProgramOf(model_, space_, choice);
      if (program.ok()) {
        ASSIGN_OR_RETURN(const PlacementShortfall shortfall, FindShortfall(*program));
        if (shortfall.least_held_seconds > 0 && shortfall.least_held_seconds < least_held) {
          least_held = shortfall.least_held_seconds;
          slow = Solve(choice).status();
        }
      }
    }
    if (least_held > space_.max_held_seconds.value_or(kInfinity)) {
      return slow;
    }
    SearchSpace unbounded = space_;
    unbounded.deadline_seconds.reset();
    unbounded.max_held_seconds.reset();
    ASSIGN_OR_RETURN(const SearchResult fastest, Search(model_, unbounded).Run(false));
    slow = Solve(fastest.best.choice).status();
    return slow.ok() ? absl::ResourceExhaustedError("no choice meets all bounds on time") : slow;
  }

  const CostModel& model_;
  const SearchSpace& space_;
  std::vector<Kind> kinds_;
  std::vector<std::map<Sizes, double>> times_;  // by kind
  std::vector<Sized> best_;                     // by kind
  absl::Status refusal_;                        // the model's first
  absl::Status fatal_;
  int64_t num_programs_ = 0;
};

absl::StatusOr<SearchResult> SearchWith(const CostModel& model, const SearchSpace& space,
                                        bool with_alternatives) {
  RETURN_IF_ERROR(space.Validate());
  return Search(model, space).Run(with_alternatives);
}

}  // namespace

absl::Status SearchSpace::Validate() const {
  const auto most = static_cast<double>(kMaxRequests);
  RETURN_IF_ERROR(CheckRange("the number of requests", static_cast<double>(requests), 1, most));
  const auto some = static_cast<double>(kMaxOfAKind);
  RETURN_IF_ERROR(
      CheckRange("the number of types of weights", static_cast<double>(weights.size()), 1, some));
  RETURN_IF_ERROR(CheckRange("the number of types of keys and values",
                             static_cast<double>(kv.size()), 1, some));
  RETURN_IF_ERROR(CheckRange("the number of sizes of prompt chunks",
                             static_cast<double>(chunk_tokens.size()), 1, some));
  if (block_requests) {
    RETURN_IF_ERROR(CheckRange("the block", static_cast<double>(*block_requests), 1,
                               static_cast<double>(requests)));
  }
  if (batch_requests) {
    RETURN_IF_ERROR(CheckRange("the batch", static_cast<double>(*batch_requests), 1,
                               static_cast<double>(block_requests.value_or(requests))));
  }
  for (const std::optional<double>& bound : {deadline_seconds, max_held_seconds}) {
    if (bound) {
      RETURN_IF_ERROR(CheckRange("a bound on seconds", *bound, 1e-9, 1e12));
    }
  }
  for (const double bytes : more_bytes) {
    RETURN_IF_ERROR(CheckRange("more memory", bytes, 0, 1e18));
  }
  return CheckRange("the margin", margin, 0, 0.9);
}

absl::StatusOr<PlacementProgram> ProgramOf(const CostModel& model, const SearchSpace& space,
                                           const BlockChoice& choice) {
  ASSIGN_OR_RETURN(PlacementProgram program, model.Program(choice));
  for (size_t i = 0; i < kNumShares; ++i) {
    if (space.shares[i]) {
      if (program.fixed[i] && *program.fixed[i] != *space.shares[i]) {
        return absl::InvalidArgumentError(
            absl::StrCat("the share of ", ShareName(static_cast<ShareId>(i)), " is ",
                         *space.shares[i], ", must be ", *program.fixed[i]));
      }
      program.fixed[i] = space.shares[i];
    }
  }
  for (CapacityRow& row : program.capacities) {
    row.capacity_bytes =
        (1 - space.margin) * row.capacity_bytes + space.more_bytes[static_cast<size_t>(row.tier)];
  }
  if (space.deadline_seconds) {
    program.max_seconds =
        *space.deadline_seconds * program.requests / static_cast<double>(space.requests);
  }
  program.max_held_seconds = space.max_held_seconds;
  for (CostPhase& phase : program.phases) {
    for (std::vector<CostTerm>* terms : {&phase.serial, &phase.overlapped}) {
      for (CostTerm& term : *terms) {
        if (!space.halved_term.empty() && term.name == space.halved_term) {
          term.seconds *= 0.5;
        }
      }
    }
  }
  return program;
}

absl::StatusOr<SearchResult> SearchPolicy(const CostModel& model, const SearchSpace& space) {
  return SearchWith(model, space, true);
}

absl::StatusOr<SearchResult> SearchBest(const CostModel& model, const SearchSpace& space) {
  return SearchWith(model, space, false);
}

absl::StatusOr<SearchResult> SearchNear(const CostModel& model, const SearchSpace& space,
                                        const BlockChoice& start) {
  SearchSpace near = space;
  near.weights = {start.weights};
  near.kv = {start.kv};
  near.chunk_tokens = {start.chunk_tokens};
  near.host_attention = start.host_attention;
  RETURN_IF_ERROR(near.Validate());
  return Search(model, near).RunNear({start.block_requests, start.batch_requests});
}

}  // namespace nightshift
