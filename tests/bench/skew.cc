// What requests of very different lengths cost: a job whose outputs have 1 to 512 tokens, beside
// one of as many equal requests with the same work in all (the ideal: every sweep has a full
// block), as they come and the longest first, and beside a closed block (zigzag), which waits for its
// longest request.
//
// Usage: skew [PACK [ROWS BLOCK MOST_OUTPUT_TOKENS]]
// PACK is the quickstart's unless given.
#include <algorithm>
#include <cstdint>
#include <functional>
#include <memory>
#include <numeric>
#include <random>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_format.h"

#include "engine/engine.h"
#include "kernels/base/status_macros.h"
#include "tests/bench/engine_job.h"

namespace nightshift {
namespace {

constexpr int64_t kPromptTokens = 32;

struct Workload {
  std::string pack;
  int64_t rows = 192;
  int64_t block = 16;
  int64_t most_output_tokens = 64;
};

// Evenly spread lengths in random order.
std::vector<int64_t> SkewedLengths(const Workload& workload) {
  std::vector<int64_t> lengths;
  for (int64_t i = 0; i < workload.rows; ++i) {
    lengths.push_back(1 + i * (workload.most_output_tokens - 1) /
                              std::max<int64_t>(workload.rows - 1, 1));
  }
  std::mt19937_64 random(1);
  std::shuffle(lengths.begin(), lengths.end(), random);
  return lengths;
}

// The same sum.
std::vector<int64_t> EqualLengths(const std::vector<int64_t>& lengths) {
  const int64_t sum = std::accumulate(lengths.begin(), lengths.end(), int64_t{0});
  const int64_t count = static_cast<int64_t>(lengths.size());
  std::vector<int64_t> equal(lengths.size(), sum / count);
  std::for_each_n(equal.begin(), sum % count, [](int64_t& length) { ++length; });
  return equal;
}

// Seconds of the job on a fresh engine.
absl::StatusOr<double> Measure(const Workload& workload, ScheduleKind schedule,
                               const std::vector<int64_t>& lengths) {
  EngineOptions options;
  options.pack_path = workload.pack;
  options.weight_budget_bytes = 0;
  options.max_block_requests = workload.block;
  options.tiers.schedule = schedule;
  ASSIGN_OR_RETURN(const std::unique_ptr<Engine> engine, Engine::Create(options));
  std::mt19937_64 random(2);
  std::uniform_int_distribution<int32_t> draw(100,
                                              static_cast<int32_t>(engine->info().vocabulary) - 1);
  std::vector<EngineRequest> requests(lengths.size());
  for (size_t i = 0; i < requests.size(); ++i) {
    requests[i].id = i + 1;
    std::generate_n(std::back_inserter(requests[i].prompt), kPromptTokens,
                    [&] { return draw(random); });
    requests[i].sampling.temperature = 0.0F;
    requests[i].sampling.ignore_eos = true;
    requests[i].sampling.max_output_tokens = lengths[i];
  }
  ASSIGN_OR_RETURN(const JobTime time, RunJob(*engine, std::move(requests)));
  return time.seconds;
}

void Print(const Workload& workload, const char* schedule, double seconds, double ideal) {
  absl::PrintF(R"({"bench": "skew", "case": "%s, %d rows of 1 to %d output tokens, block of %d", )"
               R"("value": %.2f, "unit": "s", "reference": "equal rows of the same work", )"
               R"("reference_value": %.2f, "ratio": %.3f})"
               "\n",
               schedule, workload.rows, workload.most_output_tokens, workload.block, seconds, ideal,
               ideal / seconds);
}

absl::Status Compare(const Workload& workload) {
  const std::vector<int64_t> skewed = SkewedLengths(workload);
  // The ideal before and after, as the machine may change.
  ASSIGN_OR_RETURN(const double before,
                   Measure(workload, ScheduleKind::kRolling, EqualLengths(skewed)));
  std::vector<int64_t> sorted = skewed;
  std::sort(sorted.begin(), sorted.end(), std::greater<>());
  ASSIGN_OR_RETURN(const double rolling, Measure(workload, ScheduleKind::kRolling, skewed));
  ASSIGN_OR_RETURN(const double longest_first, Measure(workload, ScheduleKind::kRolling, sorted));
  ASSIGN_OR_RETURN(const double after,
                   Measure(workload, ScheduleKind::kRolling, EqualLengths(skewed)));
  ASSIGN_OR_RETURN(const double zigzag, Measure(workload, ScheduleKind::kZigzag, skewed));
  const double ideal = (before + after) / 2;
  Print(workload, "rolling", rolling, ideal);
  Print(workload, "rolling, longest first", longest_first, ideal);
  Print(workload, "zigzag", zigzag, ideal);
  return absl::OkStatus();
}

// False when the arguments are not those of the usage.
bool ReadArguments(int argc, char** argv, Workload& workload) {
  workload.pack = argc > 1 ? argv[1] : QuickstartPack();
  return argc <= 2 || (argc == 5 && absl::SimpleAtoi(argv[2], &workload.rows) &&
                       absl::SimpleAtoi(argv[3], &workload.block) &&
                       absl::SimpleAtoi(argv[4], &workload.most_output_tokens) &&
                       workload.rows >= 1 && workload.most_output_tokens >= 1);
}

}  // namespace
}  // namespace nightshift

int main(int argc, char** argv) {
  nightshift::Workload workload;
  return nightshift::RunBenchMain(nightshift::ReadArguments(argc, argv, workload),
                                  "skew [PACK [ROWS BLOCK MOST_OUTPUT_TOKENS]]",
                                  [&] { return nightshift::Compare(workload); });
}
