// BytePairMerger: byte-level BPE of one pre-token.
// Source: Sennrich et al. 2016, section 3.2; byte-level as in GPT-2.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/string_view.h"

#include "engine/text/tokenizer_spec.h"

namespace nightshift {

// Immutable after construction, so one serves all threads; each call brings its own Scratch.
class BytePairMerger {
 public:
  struct Scratch;

  // `spec` is valid and outlives the merger. Tokens marked `special` are never made from text.
  BytePairMerger(const TokenizerSpec& spec, const std::vector<bool>& special);

  // Appends the ids of `piece`. Time O(n log n) in its bytes.
  void Encode(absl::string_view piece, Scratch& scratch, std::vector<int32_t>& ids) const;

 private:
  struct MergeTarget {
    uint32_t rank = 0;
    int32_t merged = 0;
  };

  void Merge(absl::string_view piece, Scratch& scratch, std::vector<int32_t>& ids) const;
  void LoadSymbols(absl::string_view piece, Scratch& scratch) const;
  void Propose(size_t position, Scratch& scratch) const;
  void AddWholeTokens(const TokenizerSpec& spec, const std::vector<bool>& usable);

  std::array<int32_t, 256> byte_tokens_;  // -1: none
  absl::flat_hash_map<uint64_t, MergeTarget> merges_;
  // Pieces that are one token: with ignore_merges every token, else those that merging makes again.
  // Most words of a text are found here, so this is what a cache of words would be, without a lock.
  absl::flat_hash_map<absl::string_view, int32_t> whole_tokens_;
};

// The working memory of Encode, kept by the caller from piece to piece.
struct BytePairMerger::Scratch {
  // A linked list of what has not been merged; `next` of a swallowed symbol is kSwallowed.
  struct Symbol {
    int32_t token = 0;
    uint32_t previous = 0;
    uint32_t next = 0;
  };
  // A merge that was possible when it was pushed.
  struct Candidate {
    uint32_t rank = 0;
    uint32_t position = 0;  // of the left symbol
    int32_t left = 0;
    int32_t right = 0;
    int32_t merged = 0;
  };
  std::vector<Symbol> symbols;
  std::vector<Candidate> heap;
};

}  // namespace nightshift
