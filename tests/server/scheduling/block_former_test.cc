#include "server/scheduling/block_former.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace nightshift {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::SizeIs;

BlockCandidate Candidate(int64_t index) {
  return {.priority = 2, .job_create_time_us = 1, .index = index};
}

BlockRoom EmptyRoom(int64_t max_requests = 100) {
  return {.max_requests = max_requests};
}

TEST(BlockFormerTest, TakesThemByPriorityThenAgeThenIndex) {
  std::vector<BlockCandidate> candidates(5, Candidate(0));
  candidates[0].index = 9;
  candidates[1].index = 3;
  candidates[2].job_create_time_us = 5;
  candidates[3].priority = 3;
  candidates[4].priority = 1;
  EXPECT_THAT(FormBlock(candidates, EmptyRoom()), ElementsAre(3, 1, 0, 2, 4));
}

TEST(BlockFormerTest, ClosesWhenThePlacesAreTaken) {
  const std::vector<BlockCandidate> candidates = {Candidate(0), Candidate(1), Candidate(2)};
  BlockRoom room = EmptyRoom(4);
  room.held_requests = 2;
  room.held_attempt = 1;
  EXPECT_THAT(FormBlock(candidates, room), ElementsAre(0, 1));
  room.held_requests = 4;
  EXPECT_THAT(FormBlock(candidates, room), IsEmpty());
}

TEST(BlockFormerTest, SuspectsGoFirstAndApart) {
  std::vector<BlockCandidate> candidates = {Candidate(0), Candidate(1), Candidate(2)};
  candidates[1].attempt = 2;
  candidates[2].attempt = 2;
  EXPECT_THAT(FormBlock(candidates, EmptyRoom()), ElementsAre(1, 2));
}

TEST(BlockFormerTest, SuspectsWaitUntilTheOthersHaveLeftAndNobodyJoinsMeanwhile) {
  std::vector<BlockCandidate> candidates = {Candidate(0), Candidate(1)};
  candidates[1].attempt = 2;
  BlockRoom room = EmptyRoom();
  room.held_requests = 3;
  room.held_attempt = 1;
  EXPECT_THAT(FormBlock(candidates, room), IsEmpty());
  room.held_attempt = 2;
  EXPECT_THAT(FormBlock(candidates, room), ElementsAre(1));
}

TEST(BlockFormerTest, FewSuspectsRunTogetherAndTheLastAttemptIsAlone) {
  std::vector<BlockCandidate> candidates;
  for (int64_t i = 0; i < 40; ++i) {
    candidates.push_back(Candidate(i));
    candidates.back().attempt = 2;
  }
  EXPECT_THAT(FormBlock(candidates, EmptyRoom()), SizeIs(16));
  for (BlockCandidate& candidate : candidates) {
    candidate.attempt = 3;
  }
  EXPECT_THAT(FormBlock(candidates, EmptyRoom()), ElementsAre(0));
}

TEST(BlockFormerTest, ASuspectOfTheLastAttemptDoesNotJoinOthers) {
  std::vector<BlockCandidate> candidates = {Candidate(0), Candidate(1)};
  candidates[0].attempt = 2;
  candidates[1].attempt = 3;
  EXPECT_THAT(FormBlock(candidates, EmptyRoom()), ElementsAre(0));
}

TEST(BlockFormerTest, NoCandidatesGiveNobody) {
  EXPECT_THAT(FormBlock({}, EmptyRoom()), IsEmpty());
}

}  // namespace
}  // namespace nightshift
