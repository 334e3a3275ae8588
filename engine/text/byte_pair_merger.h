// BytePairMerger: byte pair encoding of one pre-token, over bytes or over characters.
// Sources: Sennrich et al. 2016, section 3.2; byte-level as in GPT-2; with scores as in
// SentencePiece.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

#include "engine/text/character_fallback.h"
#include "engine/text/merge_table.h"
#include "engine/text/tokenizer_spec.h"

namespace nightshift {

// Immutable after Create, so one serves all threads; each call brings its own Scratch.
class BytePairMerger {
 public:
  // The working memory of Encode, kept by the caller from piece to piece.
  struct Scratch {
    MergeScratch merging;
    std::vector<int32_t> tokens;
  };

  // `spec` is valid, has one of the three BPE models, and outlives the merger. Only `usable` tokens
  // are made of text. Errors: INVALID_ARGUMENT if a byte that needs a token has none.
  static absl::StatusOr<std::unique_ptr<BytePairMerger>> Create(const TokenizerSpec& spec,
                                                                const std::vector<bool>& usable);

  // Appends the ids of `piece` (any bytes, or valid UTF-8 for models of characters). Time n log n.
  void Encode(absl::string_view piece, Scratch& scratch, std::vector<int32_t>& ids) const;

 private:
  struct WholeToken {
    int32_t id = 0;
    bool is_merged = false;  // merging its text gives this one token
  };

  BytePairMerger(const TokenizerSpec& spec, CharacterFallback fallback);
  void AddAlphabet(const TokenizerSpec& spec, const std::vector<bool>& usable);
  void AddRankedMerges(const TokenizerSpec& spec, const std::vector<bool>& usable);
  void AddScoredMerges(const TokenizerSpec& spec, const std::vector<bool>& usable);
  void AddWholeTokens(const TokenizerSpec& spec, const std::vector<bool>& usable);
  void AddNeighbours(absl::string_view left, absl::string_view right);
  int32_t SymbolOf(absl::string_view character) const;
  size_t LoadSymbols(absl::string_view piece, std::vector<MergeScratch::Symbol>& symbols) const;
  void MergePiece(absl::string_view piece, Scratch& scratch, std::vector<int32_t>& ids) const;
  void MergeStretch(absl::string_view text, size_t first, size_t last, Scratch& scratch,
                    std::vector<int32_t>& ids) const;
  void AppendTokenless(int32_t symbol, std::vector<int32_t>& ids) const;

  bool of_bytes_;
  bool ignores_merges_;
  int32_t vocabulary_;  // symbols from here on are characters without a token
  CharacterFallback fallback_;
  std::array<int32_t, 256> short_symbols_;             // of bytes, or of ASCII; -1: none
  absl::flat_hash_map<std::string, int32_t> symbols_;  // of other characters
  std::vector<std::string> tokenless_;  // the characters of the symbols from vocabulary_ on
  MergeTable merges_;
  // Two symbols that no token holds side by side never come together, so a piece may be merged in
  // stretches between them. False where a merge takes a symbol that is not its own text.
  bool cuts_ = true;
  // Most words of a text are found here, so this is what a cache of words would be, without a lock.
  absl::flat_hash_map<absl::string_view, WholeToken> whole_tokens_;
  size_t longest_token_ = 0;
};

}  // namespace nightshift
