#include "engine/policy/program_cache.h"

#include "tests/support/status_matchers.h"

#include "gtest/gtest.h"

namespace nightshift {
namespace {

// Counts how often it is asked; knows blocks of at most 100.
class CountingModel : public CostModel {
 public:
  absl::StatusOr<PlacementProgram> Program(const BlockChoice& choice) const override {
    ++num_asked_;
    if (choice.block_requests > 100) {
      return absl::InvalidArgumentError("a block above 100");
    }
    PlacementProgram program;
    program.requests = static_cast<double>(choice.block_requests);
    return program;
  }
  int num_asked() const { return num_asked_; }

 private:
  mutable int num_asked_ = 0;
};

TEST(ProgramCacheTest, AsksOnceForEachChoice) {
  const CountingModel model;
  const ProgramCache cache(model);
  for (int i = 0; i < 3; ++i) {
    EXPECT_EQ(cache.Program({.block_requests = 7})->requests, 7);
    EXPECT_EQ(cache.Program({.block_requests = 8})->requests, 8);
    EXPECT_THAT(cache.Program({.block_requests = 101}),
                StatusIs(absl::StatusCode::kInvalidArgument, "above 100"));
  }
  EXPECT_EQ(model.num_asked(), 3);
}

TEST(ProgramCacheTest, EveryPartOfAChoiceCounts) {
  const CountingModel model;
  const ProgramCache cache(model);
  const BlockChoice choice{.block_requests = 8, .batch_requests = 4};
  BlockChoice others[6] = {choice, choice, choice, choice, choice, choice};
  others[0].block_requests = 9;
  others[1].batch_requests = 5;
  others[2].chunk_tokens = 1;
  others[3].weights = DType::kU4G64;
  others[4].kv = DType::kU4G64;
  others[5].host_attention = true;
  EXPECT_OK(cache.Program(choice));
  for (const BlockChoice& other : others) {
    EXPECT_OK(cache.Program(other));
  }
  EXPECT_EQ(model.num_asked(), 7);
}

}  // namespace
}  // namespace nightshift
