#include "engine/model/router.h"

#include <cmath>
#include <limits>
#include <vector>

#include <gtest/gtest.h>

namespace nightshift {
namespace {

std::vector<ExpertChoice> Choose(const std::vector<float>& logits, size_t count, bool normalise) {
  std::vector<ExpertChoice> choices(count);
  ChooseExperts(logits, normalise, choices);
  return choices;
}

TEST(RouterTest, HighestLogitsAreChosenInOrderOfTheExperts) {
  const std::vector<ExpertChoice> choices = Choose({0.5F, -1.0F, 3.0F, 2.0F, 1.0F}, 3, true);
  ASSERT_EQ(choices.size(), 3U);
  EXPECT_EQ(choices[0].expert, 2);
  EXPECT_EQ(choices[1].expert, 3);
  EXPECT_EQ(choices[2].expert, 4);
}

TEST(RouterTest, WeightsAreSharesOfTheChosenOrOfAll) {
  const std::vector<float> logits = {1.0F, 0.0F, 2.0F, -1.0F};
  const double chosen = std::exp(1.0) + std::exp(2.0);
  const double all = chosen + 1.0 + std::exp(-1.0);
  const std::vector<ExpertChoice> normalised = Choose(logits, 2, true);
  EXPECT_NEAR(normalised[0].weight, std::exp(1.0) / chosen, 1e-7);
  EXPECT_NEAR(normalised[1].weight, std::exp(2.0) / chosen, 1e-7);
  const std::vector<ExpertChoice> plain = Choose(logits, 2, false);
  EXPECT_NEAR(plain[0].weight, std::exp(1.0) / all, 1e-7);
  EXPECT_NEAR(plain[1].weight, std::exp(2.0) / all, 1e-7);
}

TEST(RouterTest, OfEqualLogitsTheLowerExpertIsChosen) {
  const std::vector<ExpertChoice> choices = Choose({7.0F, 1.0F, 7.0F, 7.0F}, 2, true);
  EXPECT_EQ(choices[0].expert, 0);
  EXPECT_EQ(choices[1].expert, 2);
  EXPECT_EQ(choices[0].weight, 0.5F);
}

TEST(RouterTest, AllExpertsMayBeChosen) {
  const std::vector<ExpertChoice> choices = Choose({1000.0F, -1000.0F}, 2, true);
  EXPECT_EQ(choices[0].weight, 1.0F);
  EXPECT_EQ(choices[1].expert, 1);
  EXPECT_EQ(choices[1].weight, 0.0F);
}

// The head reports logits that are not finite; the choice must only stay within the experts.
TEST(RouterTest, LogitsThatAreNoNumbersMakeWeightsThatAreNone) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const std::vector<ExpertChoice> all = Choose({nan, nan, nan}, 2, true);
  EXPECT_EQ(all[0].expert, 0);
  EXPECT_EQ(all[1].expert, 1);
  EXPECT_TRUE(std::isnan(all[0].weight));
  const std::vector<ExpertChoice> one = Choose({nan, 1.0F, 0.0F}, 2, false);
  EXPECT_EQ(one[0].expert, 1);
  EXPECT_TRUE(std::isnan(one[0].weight));
}

}  // namespace
}  // namespace nightshift
