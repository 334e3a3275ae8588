// MergeTable: which two neighbouring symbols of BPE may become one, and in which order.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/container/flat_hash_map.h"

namespace nightshift {

// A symbol is a token id, or an id from the vocabulary's size on that the caller uses for a
// character without a token.
struct MergeRule {
  // Lower goes first; of equals, the leftmost.
  uint32_t priority = kNone;
  int32_t merged = -1;

  static constexpr uint32_t kNone = 0xFFFFFFFF;
  bool exists() const { return priority != kNone; }
};

// Immutable once filled.
class MergeTable {
 public:
  void Reserve(size_t merges) { merges_.reserve(merges); }
  // A later merge of the same two symbols replaces an earlier one.
  void Add(int32_t left, int32_t right, MergeRule merge) { merges_[Key(left, right)] = merge; }
  // Tells that a token may hold these two symbols side by side although they are no merge.
  void AddNeighbours(int32_t left, int32_t right) { merges_.try_emplace(Key(left, right)); }

  // The merge of two symbols; nullptr also means that no token holds them side by side. One that
  // does not exist() tells that some token does.
  const MergeRule* Find(int32_t left, int32_t right) const {
    const auto merge = merges_.find(Key(left, right));
    return merge == merges_.end() ? nullptr : &merge->second;
  }
  size_t size() const { return merges_.size(); }

 private:
  static uint64_t Key(int32_t left, int32_t right) {
    return uint64_t{static_cast<uint32_t>(left)} << 32 | static_cast<uint32_t>(right);
  }

  absl::flat_hash_map<uint64_t, MergeRule> merges_;
};

// The working memory of merging, kept by the caller from piece to piece.
struct MergeScratch {
  struct Symbol {
    int32_t token = 0;
    uint32_t offset = 0;   // of its first byte in the piece
    MergeRule merge = {};  // with the symbol behind it
    uint32_t previous = 0;
    uint32_t next = 0;
  };
  std::vector<Symbol> symbols;  // only grows; the caller knows how many count
  std::vector<uint64_t> heap;
};

// Merges symbols[first, last), whose `merge` fields are filled, until nothing merges, and appends
// what is left to `tokens`. Time n log n. Source: Sennrich et al. 2016, section 3.2.
void MergeSymbols(const MergeTable& table, size_t first, size_t last, MergeScratch& scratch,
                  std::vector<int32_t>& tokens);

}  // namespace nightshift
