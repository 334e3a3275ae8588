#include "server/scheduling/block_former.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace nightshift {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::SizeIs;

BlockCandidate Candidate(int64_t index) {
  return {.job = 1, .priority = 2, .index = index};
}

BlockRoom EmptyRoom(int64_t max_requests = 100) {
  return {.max_requests = max_requests};
}

TEST(BlockFormerTest, TakesThemByPriorityThenShareThenIndex) {
  std::vector<BlockCandidate> candidates(5, Candidate(0));
  candidates[0].index = 9;
  candidates[1].index = 3;
  candidates[2].job = 2;
  candidates[2].share_tag = 5;
  candidates[3].priority = 3;
  candidates[4].priority = 1;
  EXPECT_THAT(FormBlock(candidates, EmptyRoom()), ElementsAre(3, 1, 0, 2, 4));
}

TEST(BlockFormerTest, JobsTakeTurnsByTheirTags) {
  std::vector<BlockCandidate> candidates;
  for (int64_t i = 0; i < 6; ++i) {
    candidates.push_back(Candidate(i));
    candidates.back().share_tag = i < 4 ? static_cast<double>(i) : static_cast<double>(i) - 3.5;
    candidates.back().job = i < 4 ? 1 : 2;
  }
  EXPECT_THAT(FormBlock(candidates, EmptyRoom()), ElementsAre(0, 4, 1, 5, 2, 3));
}

TEST(BlockFormerTest, TheLongestOfAJobGoFirstWhoseverTurnItIs) {
  std::vector<BlockCandidate> candidates = {Candidate(0), Candidate(1), Candidate(2)};
  candidates[2].predicted_tokens = 900;
  candidates[1].predicted_tokens = 100;
  candidates[2].share_tag = 3;  // was claimed last
  EXPECT_THAT(FormBlock(candidates, EmptyRoom()), ElementsAre(2, 1, 0));
}

// Rows of documents 1 and 2 behind an instruction that all have: they differ from the second page.
TEST(BlockFormerTest, RowsThatShareAPrefixGoTogetherTheLongestGroupFirst) {
  std::vector<std::vector<uint64_t>> pages;
  std::vector<BlockCandidate> candidates;
  for (int64_t i = 0; i < 6; ++i) {
    pages.push_back({7, i % 2 == 0 ? 20U : 21U});
  }
  for (int64_t i = 0; i < 6; ++i) {
    candidates.push_back(Candidate(i));
    candidates.back().pages = pages[static_cast<size_t>(i)];
    candidates.back().predicted_tokens = 10 * (i + 1);
  }
  EXPECT_THAT(FormBlock(candidates, EmptyRoom()), ElementsAre(5, 3, 1, 4, 2, 0));
}

TEST(BlockFormerTest, APromptWithoutAWholePageIsAGroupOfItsOwn) {
  const std::vector<uint64_t> shared = {7};
  std::vector<BlockCandidate> candidates = {Candidate(0), Candidate(1), Candidate(2)};
  candidates[0].pages = shared;
  candidates[2].pages = shared;
  candidates[0].predicted_tokens = 5;
  candidates[1].predicted_tokens = 50;
  candidates[2].predicted_tokens = 80;
  EXPECT_THAT(FormBlock(candidates, EmptyRoom()), ElementsAre(2, 0, 1));
}

TEST(BlockFormerTest, PagesAreEqualAsFarAsPromptsAre) {
  std::vector<int32_t> one(200, 5);
  std::vector<int32_t> other = one;
  other[70] = 6;
  const std::vector<uint64_t> a = HashPages(one);
  const std::vector<uint64_t> b = HashPages(other);
  ASSERT_THAT(a, SizeIs(3));
  ASSERT_THAT(b, SizeIs(3));
  EXPECT_EQ(a[0], b[0]);
  EXPECT_NE(a[1], b[1]);
  EXPECT_NE(a[2], b[2]) << "what follows a difference is not shared";
  EXPECT_THAT(HashPages(std::vector<int32_t>(63, 1)), IsEmpty());
  EXPECT_THAT(HashPages(std::vector<int32_t>(1 << 20, 1)), SizeIs(kMaxPrefixPages));
}

TEST(BlockFormerTest, LowerPrioritiesMakeRoomTheLowestFirstAndWhatLosesLeast) {
  const std::vector<BlockMember> held = {{2, 10}, {1, 500}, {3, 1}, {1, 20}, {2, 5}};
  EXPECT_THAT(ChooseToSuspend(held, 3, 3), ElementsAre(3, 1, 4));
  EXPECT_THAT(ChooseToSuspend(held, 2, 9), ElementsAre(3, 1));
  EXPECT_THAT(ChooseToSuspend(held, 1, 9), IsEmpty());
  EXPECT_THAT(ChooseToSuspend(held, 3, 0), IsEmpty());
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
