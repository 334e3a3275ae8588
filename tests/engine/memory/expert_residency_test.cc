#include "engine/memory/expert_residency.h"

#include <deque>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace nightshift {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::SizeIs;

// A layer of experts, each matrix of `num_shards` shards; tensor numbers count up: gate, up, down.
class Layer {
 public:
  Layer(size_t num_experts, size_t num_shards, size_t first_tensor = 0) {
    for (size_t i = 0; i < num_experts; ++i) {
      experts_.emplace_back();
      for (MatMulWeights* matrix :
           {&experts_.back().gate, &experts_.back().up, &experts_.back().down}) {
        std::vector<WeightShardView>& shards = shards_.emplace_back(num_shards);
        matrix->matrix = {64, 64, shards};
        matrix->tensor = first_tensor++;
      }
    }
  }
  const std::vector<ExpertWeights>& experts() const { return experts_; }
  // All shards of the expert come into memory, or go.
  void Set(size_t expert, bool is_resident) {
    for (size_t matrix = 0; matrix < 3; ++matrix) {
      for (WeightShardView& shard : shards_[3 * expert + matrix]) {
        shard.data = is_resident ? &byte_ : nullptr;
      }
    }
  }
  void Set(const ShardExchange& exchange) {
    shards_[exchange.in.tensor][exchange.in.shard].data = &byte_;
    shards_[exchange.out.tensor][exchange.out.shard].data = nullptr;
  }

 private:
  std::byte byte_{};
  std::vector<ExpertWeights> experts_;
  std::deque<std::vector<WeightShardView>> shards_;
};

TEST(ExpertResidencyTest, AnExpertThatIsHitTakesThePlaceOfOneThatIsNot) {
  Layer layer(4, 1);
  layer.Set(0, true);
  layer.Set(1, true);
  ExpertResidency residency;
  const std::vector<size_t> hit = {1, 3};
  // Expert 3 (tensors 9 to 11) for expert 0 (0 to 2); expert 1 is hit, too, and stays.
  EXPECT_THAT(residency.Count(layer.experts(), hit),
              ElementsAre(ShardExchange{{9, 0}, {0, 0}}, ShardExchange{{10, 0}, {1, 0}},
                          ShardExchange{{11, 0}, {2, 0}}));
}

TEST(ExpertResidencyTest, WhatIsHitMoreOftenStays) {
  Layer layer(3, 1);
  layer.Set(0, true);
  ExpertResidency residency;
  const std::vector<size_t> often = {0};
  const std::vector<size_t> seldom = {2};
  for (int sweep = 0; sweep < 10; ++sweep) {
    EXPECT_THAT(residency.Count(layer.experts(), often), IsEmpty());
  }
  EXPECT_THAT(residency.Count(layer.experts(), seldom), IsEmpty());
  // What is asked changes: within some tens of sweeps memory follows, and then stays.
  int sweeps = 0;
  std::vector<ShardExchange> exchanges;
  while (exchanges.empty()) {
    ASSERT_LT(++sweeps, 30);
    exchanges = residency.Count(layer.experts(), seldom);
  }
  EXPECT_THAT(exchanges, SizeIs(3));
  layer.Set(0, false);
  layer.Set(2, true);
  for (int sweep = 0; sweep < 50; ++sweep) {
    EXPECT_THAT(residency.Count(layer.experts(), seldom), IsEmpty());
  }
}

TEST(ExpertResidencyTest, ExpertsThatAreAllHitStayWhereTheyAre) {
  Layer layer(4, 2);
  layer.Set(1, true);
  ExpertResidency residency;
  const std::vector<size_t> all = {0, 1, 2, 3};
  for (int sweep = 0; sweep < 100; ++sweep) {
    EXPECT_THAT(residency.Count(layer.experts(), all), IsEmpty());
  }
}

TEST(ExpertResidencyTest, ChangesOfOneSweepAreBounded) {
  Layer layer(40, 1);
  for (size_t expert = 0; expert < 20; ++expert) {
    layer.Set(expert, true);
  }
  ExpertResidency residency;
  std::vector<size_t> hit;
  for (size_t expert = 20; expert < 40; ++expert) {
    hit.push_back(expert);
  }
  size_t missing = 60;
  while (missing > 0) {
    const std::vector<ShardExchange> exchanges = residency.Count(layer.experts(), hit);
    ASSERT_FALSE(exchanges.empty());
    ASSERT_LE(exchanges.size(), ExpertResidency::kMostExchanges);
    for (const ShardExchange& exchange : exchanges) {
      layer.Set(exchange);
    }
    missing -= exchanges.size();
  }
  EXPECT_THAT(residency.Count(layer.experts(), hit), IsEmpty());
}

TEST(ExpertResidencyTest, LayersAreCountedEachForItself) {
  Layer first(2, 1);
  Layer second(2, 1, 100);
  first.Set(0, true);
  second.Set(0, true);
  ExpertResidency residency;
  const std::vector<size_t> hit = {0};
  const std::vector<size_t> other = {1};
  for (int sweep = 0; sweep < 20; ++sweep) {
    residency.Count(first.experts(), hit);
  }
  EXPECT_THAT(residency.Count(first.experts(), other), IsEmpty());
  EXPECT_THAT(residency.Count(second.experts(), other), SizeIs(3));
}

}  // namespace
}  // namespace nightshift
