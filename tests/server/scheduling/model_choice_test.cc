#include "server/scheduling/model_choice.h"

#include <vector>

#include <gtest/gtest.h>

namespace nightshift {
namespace {

const ModelKey kA = {"a", ComputeType::kBF16};
const ModelKey kB = {"b", ComputeType::kBF16};

TEST(ModelChoiceTest, LoadsTheModelOfTheFirstJobWithWork) {
  const std::vector<JobDemand> jobs = {{kA, 2, false}, {kB, 2, true}};
  EXPECT_EQ(ChooseModel(jobs, std::nullopt), kB);
}

TEST(ModelChoiceTest, KeepsWhatIsLoadedWhenThereIsNoWork) {
  const std::vector<JobDemand> jobs = {{kB, 2, false}};
  EXPECT_EQ(ChooseModel(jobs, kA), kA);
  EXPECT_EQ(ChooseModel(jobs, std::nullopt), std::nullopt);
}

TEST(ModelChoiceTest, StaysWhileAnyJobHasWorkForTheLoadedModel) {
  const std::vector<JobDemand> jobs = {{kB, 2, true}, {kA, 2, true}};
  EXPECT_EQ(ChooseModel(jobs, kA), kA);
}

TEST(ModelChoiceTest, SwitchesWhenTheLoadedModelHasNoMoreWork) {
  const std::vector<JobDemand> jobs = {{kA, 2, false}, {kB, 1, true}};
  EXPECT_EQ(ChooseModel(jobs, kA), kB);
}

TEST(ModelChoiceTest, AHigherPriorityTakesOver) {
  const std::vector<JobDemand> jobs = {{kB, 3, true}, {kA, 2, true}};
  EXPECT_EQ(ChooseModel(jobs, kA), kB);
}

TEST(ModelChoiceTest, TheHighestPriorityOfTheLoadedModelCounts) {
  const std::vector<JobDemand> jobs = {{kB, 3, true}, {kA, 3, true}, {kA, 1, true}};
  EXPECT_EQ(ChooseModel(jobs, kA), kA);
}

TEST(ModelChoiceTest, ComputeTypesAreDifferentModels) {
  const ModelKey a_f32 = {"a", ComputeType::kF32};
  EXPECT_EQ(ChooseModel(std::vector<JobDemand>{{a_f32, 2, true}}, kA), a_f32);
}

}  // namespace
}  // namespace nightshift
