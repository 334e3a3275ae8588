// A disk that cannot read (tests/support/read_faults.cc): the sweep fails by name, and a new engine
// gives the same tokens as if nothing had been.
#include <cstdlib>
#include <fstream>
#include <string>

#include <gtest/gtest.h>

#include "absl/strings/str_cat.h"

#include "engine/engine.h"
#include "engine/model/pack.h"
#include "tests/support/engine_runs.h"
#include "tests/support/status_matchers.h"
#include "tests/support/temporary_folder.h"
#include "tests/support/tiny_packs.h"

namespace nightshift {
namespace {

class ReadFaultTest : public testing::Test {
 protected:
  void SetUp() override {
    fault_ = folder_.path() + "/fault";
    ASSERT_EQ(setenv("READ_FAULT", fault_.c_str(), 1), 0);
    ASSERT_OK_AND_ASSIGN(const auto pack, Pack::Open(TinyPack("llama")));
    const ShardEntry& shard = pack->Find("layers.1.up.weight")->shards.front();
    offset_ = shard.offset + shard.bytes / 2;
  }
  void Fail(const std::string& times) { std::ofstream(fault_) << offset_ << " " << times << "\n"; }
  absl::StatusOr<std::unique_ptr<Engine>> Create(int64_t weight_budget_bytes) {
    EngineOptions options;
    options.pack_path = TinyPack("llama");
    options.compute_type = ComputeType::kF32;
    options.weight_budget_bytes = weight_budget_bytes;
    options.memory_budget_bytes = int64_t{64} << 20;
    return Engine::Create(options);
  }
  static EngineRequest Request() {
    EngineRequest request;
    request.prompt = {5, 6, 7, 8};
    request.sampling.max_output_tokens = 6;
    request.sampling.want_logprobs = true;
    return request;
  }

  TemporaryFolder folder_;
  std::string fault_;
  int64_t offset_ = 0;
};

TEST_F(ReadFaultTest, ASweepFailsByTensorFileAndOffsetAndTheNextEngineWorks) {
  Fail("once");
  ASSERT_OK_AND_ASSIGN(const auto engine, Create(0));
  ASSERT_OK(engine->Admit({Request()})[0].status);
  const absl::Status status = engine->Sweep().status();
  EXPECT_THAT(status, StatusIs(absl::StatusCode::kFailedPrecondition, "tensor layers.1.up.weight"));
  EXPECT_THAT(status, StatusIs(absl::StatusCode::kFailedPrecondition, "weights.extent at offset "));
  EXPECT_THAT(status, StatusIs(absl::StatusCode::kFailedPrecondition, "Input/output error"));
  ASSERT_OK_AND_ASSIGN(const auto again, Create(0));
  ASSERT_OK_AND_ASSIGN(const auto resident, Create(INT64_MAX));
  EXPECT_EQ(RunToEnd(*again, {Request()}, {}).outcomes,
            RunToEnd(*resident, {Request()}, {}).outcomes);
}

TEST_F(ReadFaultTest, AnEngineWhoseWeightsCannotBeLoadedIsRefusedByName) {
  Fail("always");
  EXPECT_THAT(Create(INT64_MAX),
              StatusIs(absl::StatusCode::kFailedPrecondition, "tensor layers.1.up.weight"));
}

}  // namespace
}  // namespace nightshift
