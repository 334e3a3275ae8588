#include "server/scheduling/progress.h"

#include <gtest/gtest.h>

#include "tests/support/status_matchers.h"

namespace nightshift {
namespace {

RequestProgress MakeProgress(bool has_logprobs) {
  RequestProgress progress;
  progress.model_digest = "digest";
  progress.numeric_mode = "f32/device";
  progress.has_logprobs = has_logprobs;
  progress.generated = {{.token = 5, .logprob = -0.125F, .top = {{.token = 6, .logprob = -2.5F}}},
                        {.token = 1 << 30, .logprob = -1e-30F, .top = {}}};
  return progress;
}

TEST(ProgressTest, ComesBackToTheBit) {
  const auto parsed = ParseProgress(SerializeProgress(MakeProgress(true)));
  ASSERT_OK(parsed);
  EXPECT_EQ(parsed->model_digest, "digest");
  EXPECT_EQ(parsed->numeric_mode, "f32/device");
  ASSERT_EQ(parsed->generated.size(), 2U);
  EXPECT_EQ(parsed->generated[0].token, 5);
  EXPECT_EQ(parsed->generated[0].logprob, -0.125F);
  EXPECT_EQ(parsed->generated[0].top[0].logprob, -2.5F);
  EXPECT_EQ(parsed->generated[1].token, 1 << 30);
  EXPECT_EQ(parsed->generated[1].logprob, -1e-30F);
}

TEST(ProgressTest, KeepsIdsAloneWhenLogprobsAreNotWanted) {
  const std::string bytes = SerializeProgress(MakeProgress(false));
  const auto parsed = ParseProgress(bytes);
  ASSERT_OK(parsed);
  EXPECT_EQ(parsed->generated[0].token, 5);
  EXPECT_TRUE(parsed->generated[0].top.empty());
  EXPECT_LT(bytes.size(), SerializeProgress(MakeProgress(true)).size());
}

TEST(ProgressTest, RefusesEveryTruncation) {
  for (const bool has_logprobs : {false, true}) {
    const std::string bytes = SerializeProgress(MakeProgress(has_logprobs));
    for (size_t length = 0; length < bytes.size(); ++length) {
      EXPECT_THAT(ParseProgress(bytes.substr(0, length)),
                  StatusIs(absl::StatusCode::kDataLoss, "progress"))
          << length;
    }
  }
}

TEST(ProgressTest, RefusesCountsBeyondTheBytesAndBytesBehindTheEnd) {
  std::string bytes = SerializeProgress({.model_digest = "", .numeric_mode = "", .generated = {}});
  EXPECT_THAT(ParseProgress(bytes + "x"), StatusIs(absl::StatusCode::kDataLoss, "behind its end"));
  bytes.replace(bytes.size() - 4, 4, "\xFF\xFF\xFF\xFF");
  EXPECT_THAT(ParseProgress(bytes), StatusIs(absl::StatusCode::kDataLoss, "counts"));
  bytes[1] = '9';
  EXPECT_THAT(ParseProgress(bytes), StatusIs(absl::StatusCode::kDataLoss, "version"));
}

}  // namespace
}  // namespace nightshift
