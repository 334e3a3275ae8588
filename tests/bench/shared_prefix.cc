// What it brings to compute once what all prompts of a job have in common: a job of documents
// behind one instruction, with shared pages and without.
//
// Usage: shared_prefix [PACK [ROWS COMMON_TOKENS OWN_TOKENS NEW_TOKENS]]
// PACK is the quickstart's unless given.
#include <algorithm>
#include <cstdint>
#include <memory>
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

constexpr int kRepeats = 3;

struct Workload {
  std::string pack;
  int64_t rows = 64;
  int64_t common_tokens = 400;
  int64_t own_tokens = 100;
  int64_t new_tokens = 8;
};

std::vector<EngineRequest> MakeRequests(const Workload& workload, int64_t vocabulary) {
  std::mt19937_64 random(1);
  std::uniform_int_distribution<int32_t> draw(100, static_cast<int32_t>(vocabulary) - 1);
  const auto add = [&](std::vector<int32_t>& tokens, int64_t count) {
    std::generate_n(std::back_inserter(tokens), count, [&] { return draw(random); });
  };
  std::vector<int32_t> common;
  add(common, workload.common_tokens);
  std::vector<EngineRequest> requests(static_cast<size_t>(workload.rows));
  for (size_t i = 0; i < requests.size(); ++i) {
    requests[i].id = i + 1;
    requests[i].prompt = common;
    add(requests[i].prompt, workload.own_tokens);
    requests[i].sampling.temperature = 0.0F;
    requests[i].sampling.ignore_eos = true;
    requests[i].sampling.max_output_tokens = workload.new_tokens;
  }
  return requests;
}

// Rows a second of a fresh engine, so that nothing is left of a run before.
absl::StatusOr<double> Measure(const Workload& workload, bool share) {
  EngineOptions options;
  options.pack_path = workload.pack;
  options.share_prefixes = share;
  ASSIGN_OR_RETURN(const std::unique_ptr<Engine> engine, Engine::Create(options));
  ASSIGN_OR_RETURN(const JobTime time,
                   RunJob(*engine, MakeRequests(workload, engine->info().vocabulary)));
  return static_cast<double>(workload.rows) / time.seconds;
}

double Median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

absl::Status Compare(const Workload& workload) {
  std::vector<double> shared;
  std::vector<double> own;
  for (int i = 0; i < kRepeats; ++i) {  // in turn: the machine may change
    ASSIGN_OR_RETURN(shared.emplace_back(), Measure(workload, true));
    ASSIGN_OR_RETURN(own.emplace_back(), Measure(workload, false));
  }
  absl::PrintF(R"({"bench": "shared_prefix", "case": "%d rows, %d common and %d+%d tokens", )"
               R"("value": %.2f, "unit": "rows/s", "reference": "each row computes its own", )"
               R"("reference_value": %.2f, "ratio": %.2f})"
               "\n",
               workload.rows, workload.common_tokens, workload.own_tokens, workload.new_tokens,
               Median(shared), Median(own), Median(shared) / Median(own));
  return absl::OkStatus();
}

// False when the arguments are not those of the usage.
bool ReadArguments(int argc, char** argv, Workload& workload) {
  workload.pack = argc > 1 ? argv[1] : QuickstartPack();
  return argc <= 2 || (argc == 6 && absl::SimpleAtoi(argv[2], &workload.rows) &&
                       absl::SimpleAtoi(argv[3], &workload.common_tokens) &&
                       absl::SimpleAtoi(argv[4], &workload.own_tokens) &&
                       absl::SimpleAtoi(argv[5], &workload.new_tokens));
}

}  // namespace
}  // namespace nightshift

int main(int argc, char** argv) {
  nightshift::Workload workload;
  return nightshift::RunBenchMain(nightshift::ReadArguments(argc, argv, workload),
                                  "shared_prefix [PACK [ROWS COMMON_TOKENS OWN_TOKENS NEW_TOKENS]]",
                                  [&] { return nightshift::Compare(workload); });
}
