#include "server/scheduling/output_lengths.h"

#include <gtest/gtest.h>

namespace nightshift {
namespace {

TEST(OutputLengthsTest, AnUnknownJobTakesAllThatItMay) {
  OutputLengths lengths;
  EXPECT_EQ(lengths.Predict("a", 100, 256), 256);
  EXPECT_EQ(lengths.MeanTokens("a", 77), 77);
}

TEST(OutputLengthsTest, LearnsTheLengthThatAJobHas) {
  OutputLengths lengths;
  for (int i = 0; i < 3; ++i) {
    lengths.Learn("labels", 500, 4);
  }
  EXPECT_EQ(lengths.Predict("labels", 100, 256), 4);
  EXPECT_EQ(lengths.Predict("labels", 100, 2), 2) << "never above its limit";
  EXPECT_EQ(lengths.Predict("other", 100, 256), 256);
  EXPECT_EQ(lengths.MeanTokens("labels", 0), 504);
}

TEST(OutputLengthsTest, LearnsThatLongerDocumentsHaveLongerSummaries) {
  OutputLengths lengths;
  for (int64_t i = 0; i < 40; ++i) {
    const int64_t prompt = 100 + 50 * i;
    lengths.Learn("summaries", prompt, prompt / 10 + (i % 2));
  }
  EXPECT_NEAR(static_cast<double>(lengths.Predict("summaries", 3000, 1000)), 300, 5);
  EXPECT_NEAR(static_cast<double>(lengths.Predict("summaries", 200, 1000)), 20, 5);
}

TEST(OutputLengthsTest, StaysInItsBoundsWhereTheLineLeavesThem) {
  OutputLengths lengths;
  for (int64_t i = 0; i < 40; ++i) {
    lengths.Learn("falling", 100 + i, 200 - 4 * i);
  }
  EXPECT_EQ(lengths.Predict("falling", 100'000, 256), 1);
  EXPECT_EQ(lengths.Predict("falling", 0, 256), 256);
  EXPECT_EQ(lengths.Predict("falling", 120, 0), 0);
}

TEST(OutputLengthsTest, GoesOnFromWhatAnEarlierRunKnew) {
  OutputLengths lengths;
  lengths.Begin("a", 1000, 500'000, 30'000);
  EXPECT_EQ(lengths.Predict("a", 10, 256), 30);
  for (int i = 0; i < 200; ++i) {
    lengths.Learn("a", 500, 90);
  }
  EXPECT_NEAR(static_cast<double>(lengths.Predict("a", 500, 256)), 86, 5) << "what is seen soon outweighs it";
}

TEST(OutputLengthsTest, FollowsAJobThatChanges) {
  OutputLengths lengths;
  for (int i = 0; i < 100'000; ++i) {
    lengths.Learn("a", 500, 10);
  }
  for (int i = 0; i < 8'000; ++i) {
    lengths.Learn("a", 500, 100);
  }
  EXPECT_GT(lengths.Predict("a", 500, 256), 75);
}

TEST(OutputLengthsTest, AJobThatEndedIsForgotten) {
  OutputLengths lengths;
  lengths.Learn("a", 5, 5);
  lengths.End("a");
  EXPECT_EQ(lengths.Predict("a", 5, 64), 64);
}

}  // namespace
}  // namespace nightshift
