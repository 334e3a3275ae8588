// Merging by heap, by scanning and in stretches, against merging as its definition says.
#include "engine/text/byte_pair_merger.h"

#include <map>
#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "tests/support/status_matchers.h"

namespace nightshift {
namespace {

using Ids = std::vector<int32_t>;

// Tokens for each letter and for random joins of two tokens, which a random half of the joins that
// make them may also reach another way.
TokenizerSpec RandomSpec(const std::string& model, std::mt19937& random) {
  TokenizerSpec spec;
  spec.model = model;
  for (const char letter : std::string("abcd"))
    spec.tokens.emplace_back(1, letter);
  std::map<std::string, int32_t> ids;
  for (size_t id = 0; id < spec.tokens.size(); ++id)
    ids[spec.tokens[id]] = static_cast<int32_t>(id);
  for (int join = 0; join < 40; ++join) {
    const auto left = static_cast<int32_t>(random() % spec.tokens.size());
    const auto right = static_cast<int32_t>(random() % spec.tokens.size());
    const std::string text =
        spec.tokens[static_cast<size_t>(left)] + spec.tokens[static_cast<size_t>(right)];
    if (text.size() > 12) continue;
    const auto [entry, is_new] = ids.emplace(text, static_cast<int32_t>(spec.tokens.size()));
    if (is_new) spec.tokens.push_back(text);
    spec.merges.push_back({.left = left, .right = right, .merged = entry->second});
  }
  if (model == kScoredBpe) {
    spec.merges.clear();
    for (size_t id = 0; id < spec.tokens.size(); ++id)
      spec.scores.push_back(-static_cast<double>(random() % 8));
  }
  return spec;
}

// What merging the neighbours at `i` makes and how good that is: lower is better; -1 for nothing.
std::pair<double, int32_t> MergeAt(const TokenizerSpec& spec, const Ids& ids, size_t i) {
  std::pair<double, int32_t> best = {0, -1};
  if (spec.model == kScoredBpe) {
    const std::string text =
        spec.tokens[static_cast<size_t>(ids[i])] + spec.tokens[static_cast<size_t>(ids[i + 1])];
    for (size_t id = 0; id < spec.tokens.size(); ++id) {
      if (spec.tokens[id] == text) best = {-spec.scores[id], static_cast<int32_t>(id)};
    }
    return best;
  }
  for (size_t rank = 0; rank < spec.merges.size(); ++rank) {
    const TokenizerSpec::Merge& merge = spec.merges[rank];
    if (merge.left == ids[i] && merge.right == ids[i + 1]) {
      best = {static_cast<double>(rank), merge.merged};  // of equal merges the last counts
    }
  }
  return best;
}

Ids MergeByDefinition(const TokenizerSpec& spec, const std::string& text) {
  Ids ids;
  for (const char letter : text)
    ids.push_back(letter - 'a');
  while (true) {
    size_t place = ids.size();
    std::pair<double, int32_t> best = {0, -1};
    for (size_t i = 0; i + 1 < ids.size(); ++i) {
      const auto merge = MergeAt(spec, ids, i);
      if (merge.second < 0 || (best.second >= 0 && merge.first >= best.first)) continue;
      best = merge;
      place = i;
    }
    if (best.second < 0) return ids;
    ids[place] = best.second;
    ids.erase(ids.begin() + static_cast<std::ptrdiff_t>(place) + 1);
  }
}

TEST(BytePairMergerTest, MergesAsTheDefinitionSays) {
  std::mt19937 random(17);
  for (int round = 0; round < 60; ++round) {
    const std::string model =
        std::vector<std::string>{kByteBpe, kCharacterBpe, kScoredBpe}[round % 3];
    const TokenizerSpec spec = RandomSpec(model, random);
    ASSERT_OK_AND_ASSIGN(const auto merger,
                         BytePairMerger::Create(spec, std::vector<bool>(spec.tokens.size(), true)));
    BytePairMerger::Scratch scratch;
    for (int example = 0; example < 20; ++example) {
      std::string text;
      for (size_t length = random() % 90; length > 0; --length)
        text.push_back(static_cast<char>('a' + random() % (example % 4 + 1)));
      Ids ids;
      merger->Encode(text, scratch, ids);
      EXPECT_EQ(ids, MergeByDefinition(spec, text)) << model << " " << text;
    }
  }
}

// SentencePiece lets characters merge that have no token of their own.
TEST(BytePairMergerTest, MergesCharactersWithoutATokenByScore) {
  TokenizerSpec spec;
  spec.model = kScoredBpe;
  spec.tokens = {"<unk>", "a", "ab", "\xC3\xA9\xC3\xA8"};
  spec.scores = {0, 0, -1, -2};
  spec.unknown_token = 0;
  ASSERT_OK_AND_ASSIGN(const auto merger, BytePairMerger::Create(spec, {false, true, true, true}));
  BytePairMerger::Scratch scratch;
  Ids ids;
  merger->Encode(
      "aab\xC3\xA9\xC3\xA8"
      "b\xC3\xA8",
      scratch, ids);
  EXPECT_EQ(ids, (Ids{1, 2, 3, 0, 0}));
}

}  // namespace
}  // namespace nightshift
