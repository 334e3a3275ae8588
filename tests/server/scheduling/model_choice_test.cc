#include "server/scheduling/model_choice.h"

#include <vector>

#include <gtest/gtest.h>

namespace nightshift {
namespace {

const ModelKey kA = {"a", ComputeType::kBF16};
const ModelKey kB = {"b", ComputeType::kBF16};

TEST(ModelChoiceTest, LoadsTheModelOfTheFirstJobWithWork) {
  const std::vector<JobDemand> jobs = {{kA, 2, false}, {kB, 2, true}};
  EXPECT_EQ(ChooseModel(jobs, std::nullopt, false), kB);
}

TEST(ModelChoiceTest, KeepsWhatIsLoadedWhenThereIsNoWork) {
  const std::vector<JobDemand> jobs = {{kB, 2, false}};
  EXPECT_EQ(ChooseModel(jobs, kA, false), kA);
  EXPECT_EQ(ChooseModel(jobs, std::nullopt, false), std::nullopt);
}

TEST(ModelChoiceTest, StaysWhileAnyJobHasWorkForTheLoadedModel) {
  const std::vector<JobDemand> jobs = {{kB, 2, true}, {kA, 2, true}};
  EXPECT_EQ(ChooseModel(jobs, kA, false), kA);
}

TEST(ModelChoiceTest, SwitchesWhenTheLoadedModelHasNoMoreWork) {
  const std::vector<JobDemand> jobs = {{kA, 2, false}, {kB, 1, true}};
  EXPECT_EQ(ChooseModel(jobs, kA, false), kB);
}

TEST(ModelChoiceTest, AHigherPriorityTakesOver) {
  const std::vector<JobDemand> jobs = {{kB, 3, true}, {kA, 2, true}};
  EXPECT_EQ(ChooseModel(jobs, kA, false), kB);
}

TEST(ModelChoiceTest, TheHighestPriorityOfTheLoadedModelCounts) {
  const std::vector<JobDemand> jobs = {{kB, 3, true}, {kA, 3, true}, {kA, 1, true}};
  EXPECT_EQ(ChooseModel(jobs, kA, false), kA);
}

TEST(ModelChoiceTest, WhenTheSliceIsOverTheModelThatWaitedTheLongestGoesNext) {
  const ModelKey c = {"c", ComputeType::kBF16};
  const std::vector<JobDemand> jobs = {
      {kA, 2, true, 30}, {kB, 2, true, 20}, {c, 2, true, 10}, {c, 1, true, 10}};
  EXPECT_EQ(ChooseModel(jobs, kA, true), c);
  EXPECT_EQ(ChooseModel(jobs, kA, false), kA);
}

TEST(ModelChoiceTest, TheSliceIsNothingToJobsOfLowerPriorityOrOfTheSameModel) {
  EXPECT_EQ(ChooseModel(std::vector<JobDemand>{{kA, 2, true, 30}, {kB, 1, true, 0}}, kA, true), kA);
  EXPECT_EQ(ChooseModel(std::vector<JobDemand>{{kA, 2, true, 30}, {kA, 2, true, 30}}, kA, true),
            kA);
}

TEST(ModelChoiceTest, ASliceIsTwentyLoadsAtLeast) {
  EXPECT_EQ(SliceOf(1000, 10), 1000);
  EXPECT_EQ(SliceOf(1000, 100), 2000);
}

TEST(ModelChoiceTest, ComputeTypesAreDifferentModels) {
  const ModelKey a_f32 = {"a", ComputeType::kF32};
  EXPECT_EQ(ChooseModel(std::vector<JobDemand>{{a_f32, 2, true}}, kA, false), a_f32);
}

}  // namespace
}  // namespace nightshift
