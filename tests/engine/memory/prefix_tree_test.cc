#include "engine/memory/prefix_tree.h"

#include <memory>
#include <numeric>

#include <gtest/gtest.h>

#include "tests/support/status_matchers.h"

namespace nightshift {
namespace {

constexpr KvPageLayout kLayout{.dtype = DType::kF32, .kv_heads = 2, .head_width = 16};

KvLayers OneLayer() {
  ModelConfig config;
  config.num_layers = 1;
  return KvLayers(config);
}

std::vector<int32_t> Tokens(int64_t count, int32_t first = 0) {
  std::vector<int32_t> tokens(static_cast<size_t>(count));
  std::iota(tokens.begin(), tokens.end(), first);
  return tokens;
}

// `common` tokens of Tokens, then others up to `count`.
std::vector<int32_t> BeginsLike(int64_t common, int64_t count, int32_t other) {
  std::vector<int32_t> tokens = Tokens(common);
  tokens.resize(static_cast<size_t>(count), other);
  return tokens;
}

class PrefixTreeTest : public testing::Test {
 protected:
  struct Request {
    Request(PrefixTreeTest& test, const std::vector<int32_t>& tokens, bool takes = true)
        : pages(*test.cache_), path(test.tree_->Enter(tokens, takes)) {}

    PageTable pages;
    PrefixTree::Path path;
    int64_t computed = 0;
  };

  PrefixTreeTest()
      : pool_("host", int64_t{1} << 24),
        cache_(KvCache::Create(pool_, pool_, "", kLayout, OneLayer(), {.device = 100}).value()),
        tree_(std::make_unique<PrefixTree>(*cache_)) {}

  // As the engine does at an edge. Returns whether the request waits.
  bool Edge(Request& request) {
    request.computed = tree_->Take(request.path, request.computed, request.pages);
    return tree_->WaitsForOlder(request.path, request.computed);
  }
  void Compute(Request& request, int64_t tokens) {
    const int64_t first = request.computed;
    request.computed += tokens;
    ASSERT_OK(request.pages.Grow(request.computed));
    PrefixTree::Offer(request.path, first, request.computed, request.pages);
  }

  Pool pool_;
  std::unique_ptr<KvCache> cache_;
  std::unique_ptr<PrefixTree> tree_;
};

TEST_F(PrefixTreeTest, TheYoungerWaitsForTheOlderAndTakesWhatItComputed) {
  Request first(*this, BeginsLike(100, 200, -1));
  Request second(*this, BeginsLike(100, 160, -2));
  tree_->BeginEdge();
  EXPECT_FALSE(Edge(first));
  EXPECT_TRUE(Edge(second));
  Compute(first, 70);
  tree_->BeginEdge();
  EXPECT_FALSE(Edge(first));
  EXPECT_TRUE(Edge(second));  // positions 64 to 95
  EXPECT_EQ(second.computed, 64);
  Compute(first, 70);
  tree_->BeginEdge();
  EXPECT_FALSE(Edge(first));
  EXPECT_FALSE(Edge(second));
  EXPECT_EQ(second.computed, 96);
  EXPECT_EQ(cache_->free_pages(), 100 - 5);
  EXPECT_EQ(second.pages.PlaceOf(0, 2)->id, first.pages.PlaceOf(0, 2)->id);
}

TEST_F(PrefixTreeTest, LessThan64TokensInCommonAreNothing) {
  Request first(*this, BeginsLike(63, 200, -1));
  Request second(*this, BeginsLike(63, 200, -2));
  tree_->BeginEdge();
  EXPECT_FALSE(Edge(first));
  EXPECT_FALSE(Edge(second));
  Compute(first, 200);
  tree_->BeginEdge();
  EXPECT_FALSE(Edge(second));
  EXPECT_EQ(second.computed, 0);
  EXPECT_EQ(tree_->shared_stretches(), 0);
}

TEST_F(PrefixTreeTest, WhenTheOlderLeavesTheNextOneComputes) {
  auto first = std::make_unique<Request>(*this, Tokens(128));
  Request second(*this, Tokens(128));
  Request third(*this, Tokens(128));
  tree_->BeginEdge();
  EXPECT_FALSE(Edge(*first));
  EXPECT_TRUE(Edge(second));
  EXPECT_TRUE(Edge(third));
  first.reset();
  tree_->BeginEdge();
  EXPECT_FALSE(Edge(second));
  EXPECT_TRUE(Edge(third));
}

TEST_F(PrefixTreeTest, WhatTheLastOneLeftIsThereUntilItsPagesAreGiven) {
  {
    Request first(*this, Tokens(96));
    Compute(first, 96);
  }
  EXPECT_EQ(cache_->free_pages(), 100);
  {
    Request second(*this, Tokens(96));
    tree_->BeginEdge();
    EXPECT_FALSE(Edge(second));
    EXPECT_EQ(second.computed, 96);
  }
  {
    PageTable everything(*cache_);
    ASSERT_OK(everything.Grow(100 * 32));
  }
  Request third(*this, Tokens(96));
  tree_->BeginEdge();
  EXPECT_FALSE(Edge(third));
  EXPECT_EQ(third.computed, 0);
}

TEST_F(PrefixTreeTest, OneThatDoesNotTakeGivesToOthers) {
  Request scored(*this, Tokens(128), false);
  Request second(*this, Tokens(128));
  tree_->BeginEdge();
  EXPECT_FALSE(Edge(scored));
  EXPECT_TRUE(Edge(second));
  Compute(scored, 128);
  Request third(*this, Tokens(128), false);
  tree_->BeginEdge();
  EXPECT_FALSE(Edge(second));
  EXPECT_EQ(second.computed, 128);
  EXPECT_FALSE(Edge(third));
  EXPECT_EQ(third.computed, 0);
  EXPECT_EQ(tree_->shared_stretches(), 0);  // only one of them takes
}

TEST_F(PrefixTreeTest, CountsWhatSeveralHaveInCommonOnce) {
  Request first(*this, BeginsLike(128, 200, -1));
  EXPECT_EQ(tree_->SharedStretches(BeginsLike(100, 200, -2)), 3);
  EXPECT_EQ(PrefixTree::SharedStretches(first.path), 0);
  Request second(*this, BeginsLike(100, 200, -2));
  EXPECT_EQ(tree_->shared_stretches(), 3);
  {
    Request third(*this, BeginsLike(128, 200, -3));
    EXPECT_EQ(tree_->shared_stretches(), 4);
    EXPECT_EQ(PrefixTree::SharedStretches(first.path), 4);
    EXPECT_EQ(PrefixTree::SharedStretches(second.path), 3);
  }
  EXPECT_EQ(tree_->shared_stretches(), 3);
  EXPECT_EQ(tree_->SharedStretches(BeginsLike(63, 200, -2)), 0);
}

// A long run of prompts that have nothing in common: what they leave is forgotten with their pages.
TEST_F(PrefixTreeTest, ForgetsPromptsWhosePagesAreGone) {
  const std::vector<int32_t> kept = Tokens(128);
  Request held(*this, kept);
  Compute(held, 128);
  for (int32_t i = 1; i < 500; ++i) {
    Request request(*this, Tokens(320, 1000 * i));
    tree_->BeginEdge();
    ASSERT_FALSE(Edge(request));
    Compute(request, 320);
  }
  // 9 nodes a prompt, kept at most until the next pruning.
  EXPECT_LT(tree_->num_nodes(), 1100U);
  Request again(*this, kept);
  tree_->BeginEdge();
  EXPECT_FALSE(Edge(again));
  EXPECT_EQ(again.computed, 128);
}

}  // namespace
}  // namespace nightshift
