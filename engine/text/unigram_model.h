// UnigramModel: the most probable way to cut a pre-token into tokens.
// Source: Kudo 2018, section 3.2; ties and unknown characters as in Hugging Face tokenizers.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

#include "engine/text/character_fallback.h"
#include "engine/text/tokenizer_spec.h"

namespace nightshift {

// Immutable after Create, so one serves all threads; each call brings its own Scratch.
class UnigramModel {
 public:
  // The best way to cut the text before one offset.
  struct Node {
    double score = 0;
    uint32_t first = 0;  // where its last token begins
    int32_t token = kNone;
    static constexpr int32_t kNone = -1;
    static constexpr int32_t kUnknown = -2;
  };
  // The working memory of Encode, kept by the caller from piece to piece.
  struct Scratch {
    std::vector<Node> nodes;     // by offset
    std::vector<uint32_t> ends;  // of the best path's tokens, last to first
  };

  // `spec` is valid and outlives the model. Only `usable` tokens are made of text. Errors:
  // INVALID_ARGUMENT without an unknown token, or if a byte that needs a token has none.
  static absl::StatusOr<std::unique_ptr<UnigramModel>> Create(const TokenizerSpec& spec,
                                                              const std::vector<bool>& usable);

  // Appends the ids of `piece`, valid UTF-8. Time linear in its bytes, for tokens of a given
  // length.
  void Encode(absl::string_view piece, Scratch& scratch, std::vector<int32_t>& ids) const;

 private:
  UnigramModel(const TokenizerSpec& spec, CharacterFallback fallback);
  void Add(absl::string_view text, int32_t token);
  void FillNodes(absl::string_view piece, std::vector<Node>& nodes) const;
  void AppendUnknown(absl::string_view text, std::vector<int32_t>& ids) const;

  const std::vector<double>& scores_;
  CharacterFallback fallback_;
  double unknown_score_ = 0;
  // A trie over bytes: (node << 8 | byte) -> node. Node 0 is the root.
  absl::flat_hash_map<uint64_t, uint32_t> children_;
  std::vector<int32_t> token_of_node_;  // kNone where no token ends
  absl::flat_hash_map<absl::string_view, int32_t> tokens_;
};

}  // namespace nightshift
