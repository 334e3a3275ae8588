#include "tests/bench/plan_jobs.h"

#include <algorithm>
#include <filesystem>
#include <iterator>
#include <random>

#include "absl/strings/str_cat.h"

#include "engine/model/known_shapes.h"
#include "engine/model/random_pack.h"
#include "kernels/base/status_macros.h"
#include "tests/bench/engine_job.h"

namespace nightshift {

WorkloadProfile Equal(int64_t prompt_tokens, int64_t output_tokens, int64_t requests) {
  WorkloadProfile workload;
  workload.classes = {{prompt_tokens, output_tokens, requests}};
  return workload;
}

WorkloadProfile Skewed(int64_t prompt_tokens, int64_t most_output_tokens, int64_t requests) {
  WorkloadProfile workload;
  for (int64_t i = 1; i <= 8; ++i) {
    workload.classes.push_back({prompt_tokens, most_output_tokens * i / 8, requests / 8});
  }
  return workload;
}

absl::StatusOr<std::string> PackOfShape(const std::string& shape) {
  if (shape.empty()) {
    return QuickstartPack();
  }
  const std::string path = absl::StrCat(
      std::filesystem::path(QuickstartPack()).parent_path().string(), "/random-", shape, "-bf16");
  if (!std::filesystem::exists(path)) {
    RandomPackOptions options;
    options.output = path;
    ASSIGN_OR_RETURN(options.shape, FindKnownShape(shape));
    RETURN_IF_ERROR(WriteRandomPack(options).status());
  }
  return path;
}

std::vector<EngineRequest> RequestsOf(const WorkloadProfile& workload, int64_t vocabulary) {
  std::mt19937_64 random(2);
  std::uniform_int_distribution<int32_t> draw(100, static_cast<int32_t>(vocabulary) - 1);
  std::vector<EngineRequest> requests;
  for (const WorkloadClass& one : workload.classes) {
    for (int64_t i = 0; i < one.requests; ++i) {
      EngineRequest& request = requests.emplace_back();
      request.id = requests.size();
      std::generate_n(std::back_inserter(request.prompt), one.prompt_tokens,
                      [&] { return draw(random); });
      request.sampling.temperature = 0.0F;
      request.sampling.ignore_eos = true;
      request.sampling.max_output_tokens = one.output_tokens;
    }
  }
  std::shuffle(requests.begin(), requests.end(), random);
  return requests;
}

}  // namespace nightshift
