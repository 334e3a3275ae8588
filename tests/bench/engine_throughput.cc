// Tokens per second of the engine over one job of equal rows: prompt and new tokens over the time
// from the first admission to the last result.
//
// Usage: engine_throughput [PACK [ROWS PROMPT_TOKENS NEW_TOKENS THREADS f32|bf16|int8]]
// PACK is the quickstart's unless given.
#include <cstdint>
#include <optional>
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

struct Workload {
  std::string pack;
  int64_t rows = 32;
  int64_t prompt_tokens = 512;
  int64_t new_tokens = 64;
  int64_t threads = 0;  // 0: one a core
  ComputeType compute_type = ComputeType::kBF16;
};

// Prompts of random ids: no two share a prefix.
std::vector<EngineRequest> MakeRequests(const Workload& workload, int64_t vocabulary) {
  std::mt19937_64 random(1);
  std::uniform_int_distribution<int32_t> draw(100, static_cast<int32_t>(vocabulary) - 1);
  std::vector<EngineRequest> requests(static_cast<size_t>(workload.rows));
  for (size_t i = 0; i < requests.size(); ++i) {
    requests[i].id = i + 1;
    for (int64_t token = 0; token < workload.prompt_tokens; ++token) {
      requests[i].prompt.push_back(draw(random));
    }
    requests[i].sampling.temperature = 0.0F;
    requests[i].sampling.max_output_tokens = workload.new_tokens;
  }
  return requests;
}

absl::Status Measure(const Workload& workload) {
  EngineOptions options;
  options.pack_path = workload.pack;
  options.compute_type = workload.compute_type;
  options.num_threads = static_cast<int>(workload.threads);
  ASSIGN_OR_RETURN(auto engine, Engine::Create(options));
  ASSIGN_OR_RETURN(const JobTime time,
                   RunJob(*engine, MakeRequests(workload, engine->info().vocabulary)));
  absl::PrintF(R"({"bench": "engine_throughput", "case": "%d rows, %d+%d tokens, %s", )"
               R"("value": %.2f, "unit": "tokens/s"})"
               "\n",
               workload.rows, workload.prompt_tokens, workload.new_tokens,
               engine->info().numeric_mode, static_cast<double>(time.tokens) / time.seconds);
  return absl::OkStatus();
}

// False when the arguments are not those of the usage.
bool ReadArguments(int argc, char** argv, Workload& workload) {
  workload.pack = argc > 1 ? argv[1] : QuickstartPack();
  if (argc <= 2) {
    return true;
  }
  const std::optional<ComputeType> type =
      argc == 7 ? ComputeTypeNamed(argv[6]) : std::nullopt;
  workload.compute_type = type.value_or(workload.compute_type);
  return type && absl::SimpleAtoi(argv[2], &workload.rows) &&
         absl::SimpleAtoi(argv[3], &workload.prompt_tokens) &&
         absl::SimpleAtoi(argv[4], &workload.new_tokens) &&
         absl::SimpleAtoi(argv[5], &workload.threads);
}

}  // namespace
}  // namespace nightshift

int main(int argc, char** argv) {
  nightshift::Workload workload;
  return nightshift::RunBenchMain(
      nightshift::ReadArguments(argc, argv, workload),
      "engine_throughput [PACK [ROWS PROMPT_TOKENS NEW_TOKENS THREADS f32|bf16|int8]]",
      [&] { return nightshift::Measure(workload); });
}
