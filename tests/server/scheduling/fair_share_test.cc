#include "server/scheduling/fair_share.h"

#include <map>
#include <vector>

#include <gtest/gtest.h>

namespace nightshift {
namespace {

ShareJob Wanting(const std::string& id, const std::string& tenant = "t", int32_t priority = 2) {
  return {.id = id, .tenant = tenant, .priority = priority, .wants = true};
}

// Serves `times` claims of `tokens` each at once; how many tokens each job got.
std::map<std::string, double> Serve(FairShare& share, const std::vector<ShareJob>& jobs, int times,
                                  double tokens) {
  std::map<std::string, double> got;
  for (int i = 0; i < times; ++i) {
    const auto next = share.Next(jobs);
    EXPECT_TRUE(next.has_value());
    share.Serve(share.Take(jobs, *next, tokens));
    got[jobs[*next].id] += tokens;
  }
  return got;
}

TEST(FairShareTest, NobodyGoesNextWhenNobodyWants) {
  FairShare share;
  EXPECT_EQ(share.Next({}), std::nullopt);
  EXPECT_EQ(share.Next(std::vector<ShareJob>{{.id = "a", .tenant = "t"}}), std::nullopt);
}

TEST(FairShareTest, JobsOfATenantGetEqualTokensNotEqualRows) {
  FairShare share;
  const std::vector<ShareJob> jobs = {Wanting("long rows"), Wanting("short rows")};
  std::map<std::string, double> got;
  for (int i = 0; i < 1100; ++i) {
    const size_t next = *share.Next(jobs);
    const double tokens = next == 0 ? 1000 : 100;
    share.Serve(share.Take(jobs, next, tokens));
    got[jobs[next].id] += tokens;
  }
  EXPECT_NEAR(got["long rows"], got["short rows"], 1000);
}

TEST(FairShareTest, AJobThatComesLaterIsServedNextAndThenShares) {
  FairShare share;
  std::vector<ShareJob> jobs = {Wanting("week")};
  Serve(share, jobs, 500, 100);
  jobs.push_back(Wanting("short"));
  EXPECT_EQ(share.Next(jobs), 1U);
  const auto got = Serve(share, jobs, 20, 100);
  EXPECT_NEAR(got.at("short"), got.at("week"), 200) << "half, not all that it missed";
}

TEST(FairShareTest, WhoAskedForNothingSavesNothingUp) {
  FairShare share;
  std::vector<ShareJob> jobs = {Wanting("busy"), Wanting("idle")};
  Serve(share, jobs, 2, 100);
  jobs[1].wants = false;
  Serve(share, jobs, 500, 100);
  jobs[1].wants = true;
  const auto got = Serve(share, jobs, 40, 100);
  EXPECT_NEAR(got.at("idle"), got.at("busy"), 200);
}

TEST(FairShareTest, ATenantWithManyJobsGetsNoMoreThanOneWithOne) {
  FairShare share;
  std::vector<ShareJob> jobs = {Wanting("alone", "a")};
  for (const char* id : {"1", "2", "3", "4"}) {
    jobs.push_back(Wanting(id, "b"));
  }
  const auto got = Serve(share, jobs, 800, 100);
  EXPECT_NEAR(got.at("alone"), 40'000, 500);
  EXPECT_NEAR(got.at("1"), 10'000, 500);
  EXPECT_NEAR(got.at("4"), 10'000, 500);
}

TEST(FairShareTest, TenantsShareByTheirWeights) {
  FairShare share;
  std::vector<ShareJob> jobs = {Wanting("heavy", "a"), Wanting("light", "b")};
  jobs[0].tenant_weight = 3;
  const auto got = Serve(share, jobs, 400, 100);
  EXPECT_NEAR(got.at("heavy"), 3 * got.at("light"), 500);
}

TEST(FairShareTest, AHigherClassGoesFirstWhateverTheShares) {
  FairShare share;
  std::vector<ShareJob> jobs = {Wanting("low", "t", 1), Wanting("high", "t", 3)};
  EXPECT_EQ(Serve(share, jobs, 50, 100).count("low"), 0U);
  jobs[1].wants = false;
  EXPECT_EQ(share.Next(jobs), 0U);
}

TEST(FairShareTest, TagsOfALaterJobComeBeforeThoseClaimedAheadAndNotServed) {
  FairShare share;
  std::vector<ShareJob> jobs = {Wanting("week")};
  share.Next(jobs);
  share.Serve(share.Take(jobs, 0, 100));
  const double ahead = share.Take(jobs, 0, 100);  // claimed, waits
  jobs.push_back(Wanting("short"));
  ASSERT_EQ(share.Next(jobs), 1U);
  EXPECT_LT(share.Take(jobs, 1, 100), ahead);
}

TEST(FairShareTest, AJobThatEndedIsForgotten) {
  FairShare share;
  const std::vector<ShareJob> jobs = {Wanting("a"), Wanting("b")};
  Serve(share, jobs, 1, 1e6);
  share.End("a");
  EXPECT_EQ(share.Next(jobs), 0U);
}

}  // namespace
}  // namespace nightshift
