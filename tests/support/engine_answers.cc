// engine_answers PACK COMPUTE_TYPE KV_TYPE SPARSE_ATTENTION: what the engine alone answers, for tests of the daemon.
//
// Standard input has a request a line: the most tokens, then the prompt's ids. Standard output gets
// the ids of each greedy answer in the same order, a line each, and before them the numeric mode.
#include <cstdlib>
#include <iostream>
#include <map>
#include <optional>
#include <sstream>
#include <string>

#include "engine/engine.h"
#include "kernels/base/check.h"

namespace nightshift {
namespace {

void Require(const absl::Status& status) {
  if (!status.ok()) CheckFailed(__FILE__, __LINE__, "the engine answers", status.ToString());
}

EngineOptions OptionsOf(const char* const* arguments) {
  EngineOptions options;
  options.pack_path = arguments[0];
  const std::optional<ComputeType> compute_type = ComputeTypeNamed(arguments[1]);
  CHECK(compute_type.has_value());
  options.compute_type = *compute_type;
  const std::string kv_type = arguments[2];
  if (kv_type != "none") options.kv_type = kv_type == "int4" ? DType::kU4G64 : DType::kU8G64;
  options.sparse_attention = std::strtod(arguments[3], nullptr);
  return options;
}

// The requests that standard input has, each admitted.
uint64_t AdmitAll(Engine& engine) {
  uint64_t count = 0;
  std::string line;
  while (std::getline(std::cin, line)) {
    std::istringstream numbers(line);
    EngineRequest request;
    request.id = count++;
    request.sampling.temperature = 0.0F;
    request.sampling.ignore_eos = true;
    numbers >> request.sampling.max_output_tokens;
    for (int32_t token = 0; numbers >> token;) {
      request.prompt.push_back(token);
    }
    Require(engine.Admit({request})[0].status);
  }
  return count;
}

void Answer(const EngineOptions& options) {
  auto engine = Engine::Create(options);
  Require(engine.status());
  std::cout << (*engine)->info().numeric_mode << "\n";
  std::map<uint64_t, std::string> answers;
  const uint64_t count = AdmitAll(**engine);
  while ((*engine)->num_held() > 0) {
    const auto swept = (*engine)->Sweep();
    Require(swept.status());
    CHECK(swept->evicted.empty());
    for (const SweepRecord& record : swept->records) {
      if (record.token) answers[record.id] += std::to_string(record.token->token) + " ";
    }
  }
  for (uint64_t id = 0; id < count; ++id) {
    std::cout << answers[id] << "\n";
  }
}

}  // namespace
}  // namespace nightshift

int main(int argc, char** argv) {
  CHECK(argc == 5);
  nightshift::Answer(nightshift::OptionsOf(argv + 1));
  return 0;
}
