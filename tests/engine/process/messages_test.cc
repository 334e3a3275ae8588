#include "engine/process/messages.h"

#include <algorithm>
#include <limits>
#include <random>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "absl/strings/cord.h"

#include "tests/support/status_matchers.h"

namespace nightshift {
namespace {

using ::testing::ElementsAre;

EngineCall FullCall() {
  EngineCall call;
  call.kind = CallKind::kApplyPlan;
  call.options.pack_path = "/models/a b";
  call.options.compute_type = ComputeType::kF32;
  call.options.kv_type = DType::kU4G64;
  call.options.sparse_attention = 0.3;
  call.options.num_threads = 3;
  call.options.weight_budget_bytes = -1;
  call.options.disk_backend = DiskBackend::kThreads;
  call.options.share_prefixes = false;
  call.options.tiers.weights = {.device = 0.25, .host = 0.5};
  call.options.tiers.spill_folder = "/spill";
  call.options.tiers.schedule = ScheduleKind::kZigzag;
  call.options.tiers.weight_checks = WeightChecks::kFirstRead;
  call.options.tiers.host_attention = true;
  EngineRequest request;
  request.id = std::numeric_limits<uint64_t>::max();
  request.prompt = {1, -2, 3};
  request.generated = {4, 5};
  request.generated_logprobs = {{.token = 4, .logprob = -0.5F, .top = {{7, -1.0F}, {8, -2.0F}}},
                                {.token = 5, .logprob = -0.25F, .top = {}}};
  request.sampling.temperature = 0.7F;
  request.sampling.logit_bias = {{.token = 9, .bias = -100.0F}};
  request.sampling.bad_words = {{1}, {2, 3}};
  request.sampling.stop = {"", std::string("a\0b", 3)};
  request.sampling.stop_tokens = {2};
  request.sampling.prompt_logprobs = 0;
  request.synthetic_context = 1;
  call.requests = {request, {}};
  call.ids = {1, 2};
  return call;
}

EngineAnswer FullAnswer() {
  EngineAnswer answer;
  answer.status = absl::DataLossError("checksum of layers.3.up.weight");
  answer.status.SetPayload("type/one", absl::Cord(std::string("\0\xff", 2)));
  answer.info.numeric_mode = "bf16/device";
  answer.info.kv_needs.window_stretches = 5;
  answer.info.kv_budget_bytes = int64_t{1} << 40;
  answer.usage.kv_pages = 17;
  answer.usage.times.lanes[1].busy_us = 12;
  answer.num_held = 2;
  answer.outcomes = {{.id = 1, .status = absl::OkStatus()},
                     {.id = 2, .status = absl::ResourceExhaustedError("asked 2, free 1")}};
  SweepRecord record;
  record.id = 3;
  record.token = TokenLogprob{.token = 6, .logprob = -0.125F, .top = {}};
  record.finished = true;
  record.finish_reason = FinishReason::kLength;
  record.stop_reason = "stop";
  record.text = "grün";
  record.kept_tokens = 1;
  record.prompt_logprobs = {{.token = 1, .logprob = 0.0F, .top = {}}};
  record.shared_tokens = 64;
  answer.sweep.records = {record, {}};
  answer.sweep.times.wall_us = 1000;
  answer.sweep.steps = {{.kind = StepKind::kWriteActivations, .lane = LaneId::kWrite, .bytes = 5}};
  answer.sweep.evicted.resize(1);
  answer.requests.resize(2);
  return answer;
}

// Bytes stand for all fields (wire.h does not compile without one), so equal bytes are equal values.
TEST(MessagesTest, ACallIsReadAsItWasWritten) {
  const EngineCall call = FullCall();
  ASSERT_OK_AND_ASSIGN(const EngineCall read, DecodeCall(EncodeCall(call)));
  EXPECT_EQ(EncodeCall(read), EncodeCall(call));
  EXPECT_EQ(read.kind, CallKind::kApplyPlan);
  EXPECT_EQ(read.options.disk_backend, DiskBackend::kThreads);
  EXPECT_EQ(read.options.tiers.weights.host, 0.5);
  EXPECT_EQ(read.options.sparse_attention, 0.3);
  const EngineRequest& request = read.requests[0];
  EXPECT_THAT(request.prompt, ElementsAre(1, -2, 3));
  EXPECT_EQ(request.generated_logprobs[0].top[1].token, 8);
  EXPECT_THAT(request.sampling.bad_words, ElementsAre(ElementsAre(1), ElementsAre(2, 3)));
  EXPECT_EQ(request.sampling.stop[1].size(), 3U);
  EXPECT_EQ(request.sampling.prompt_logprobs, 0);
  EXPECT_THAT(read.ids, ElementsAre(1, 2));
}

TEST(MessagesTest, AnAnswerIsReadAsItWasWritten) {
  const EngineAnswer answer = FullAnswer();
  ASSERT_OK_AND_ASSIGN(const EngineAnswer read, DecodeAnswer(EncodeAnswer(answer)));
  EXPECT_EQ(EncodeAnswer(read), EncodeAnswer(answer));
  EXPECT_EQ(read.info.kv_budget_bytes, int64_t{1} << 40);
  EXPECT_EQ(read.usage.times.lanes[1].busy_us, 12);
  EXPECT_EQ(read.outcomes[1].status, answer.outcomes[1].status);
  EXPECT_EQ(read.sweep.records[0].text, "grün");
  EXPECT_EQ(read.sweep.records[0].token->logprob, -0.125F);
  EXPECT_FALSE(read.sweep.records[1].token.has_value());
  EXPECT_EQ(read.sweep.steps[0].kind, StepKind::kWriteActivations);
}

TEST(MessagesTest, AStatusKeepsItsPayloads) {
  EngineAnswer answer = FullAnswer();
  answer.status.SetPayload("type/two", absl::Cord("two"));
  ASSERT_OK_AND_ASSIGN(const EngineAnswer read, DecodeAnswer(EncodeAnswer(answer)));
  EXPECT_EQ(read.status, answer.status);
  EXPECT_EQ(read.status.GetPayload("type/one"), absl::Cord(std::string("\0\xff", 2)));
}

TEST(MessagesTest, AMessageThatIsCutOffOrTooLongIsRefused) {
  const std::string call = EncodeCall(FullCall());
  const std::string answer = EncodeAnswer(FullAnswer());
  for (size_t size = 0; size < call.size(); ++size) {
    EXPECT_THAT(DecodeCall(absl::string_view(call).substr(0, size)),
                StatusIs(absl::StatusCode::kDataLoss, "no call of an engine"));
  }
  for (size_t size = 0; size < answer.size(); ++size) {
    EXPECT_THAT(DecodeAnswer(absl::string_view(answer).substr(0, size)),
                StatusIs(absl::StatusCode::kDataLoss, "no answer of an engine"));
  }
  EXPECT_FALSE(DecodeCall(call + "x").ok());
  EXPECT_FALSE(DecodeAnswer(answer + std::string(1, '\0')).ok());
}

TEST(MessagesTest, AnEnumBeyondItsLastValueIsRefused) {
  std::string call = EncodeCall({});
  call[0] = static_cast<char>(CallKind::kApplyPlan) + 1;
  EXPECT_FALSE(DecodeCall(call).ok());
}

TEST(MessagesTest, ALengthThatPromisesMoreThanThereIsTakesNoMemory) {
  std::string answer = EncodeAnswer({});
  // The list of suspended requests is last.
  std::fill(answer.end() - 8, answer.end(), '\xff');
  EXPECT_FALSE(DecodeAnswer(answer).ok());
}

// What reads well is written as the same bytes: nothing is half understood.
TEST(MessagesTest, DamagedBytesAreRefusedOrReadWhole) {
  std::mt19937 generator(1);
  const std::string good = EncodeAnswer(FullAnswer());
  for (int turn = 0; turn < 20'000; ++turn) {
    std::string bad = good;
    for (int change = 0; change < 1 + turn % 3; ++change) {
      bad[generator() % bad.size()] = static_cast<char>(generator());
    }
    const absl::StatusOr<EngineAnswer> read = DecodeAnswer(bad);
    if (read.ok()) {
      EXPECT_EQ(EncodeAnswer(*read).size(), bad.size());
    }
  }
}

}  // namespace
}  // namespace nightshift
