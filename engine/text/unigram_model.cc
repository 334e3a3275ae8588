#include "engine/text/unigram_model.h"

#include <algorithm>
#include <utility>

#include "kernels/base/status_macros.h"
#include "kernels/base/utf8.h"

namespace nightshift {
namespace {

// How much worse than the worst token an unknown character is (SentencePiece, unigram_model.cc).
constexpr double kUnknownPenalty = 10;

}  // namespace

UnigramModel::UnigramModel(const TokenizerSpec& spec, CharacterFallback fallback)
    : scores_(spec.scores), fallback_(std::move(fallback)), token_of_node_(1, Node::kNone) {}

absl::StatusOr<std::unique_ptr<UnigramModel>> UnigramModel::Create(
    const TokenizerSpec& spec, const std::vector<bool>& usable) {
  if (spec.unknown_token < 0) {
    return absl::InvalidArgumentError("tokenizer: a Unigram model without an unknown token");
  }
  ASSIGN_OR_RETURN(CharacterFallback fallback, CharacterFallback::Create(spec));
  std::unique_ptr<UnigramModel> model(new UnigramModel(spec, std::move(fallback)));
  std::vector<bool> is_model_token(usable.size(), true);
  for (const int32_t id : spec.decode_only)
    is_model_token[static_cast<size_t>(id)] = false;
  double least = spec.scores[static_cast<size_t>(spec.unknown_token)];
  for (size_t id = 0; id < usable.size(); ++id) {
    if (is_model_token[id] && !spec.tokens[id].empty()) least = std::min(least, spec.scores[id]);
    if (usable[id]) model->Add(spec.tokens[id], static_cast<int32_t>(id));
  }
  model->unknown_score_ = least - kUnknownPenalty;
  return model;
}

void UnigramModel::Add(absl::string_view text, int32_t token) {
  uint32_t node = 0;
  for (const char byte : text) {
    const auto added = static_cast<uint32_t>(token_of_node_.size());
    const auto child =
        children_.try_emplace(uint64_t{node} << 8 | static_cast<uint8_t>(byte), added);
    if (child.second) token_of_node_.push_back(Node::kNone);
    node = child.first->second;
  }
  token_of_node_[node] = token;
  tokens_[text] = token;
}

// Equal scores: the path that was found first stays, so of two tokens that end at one place the
// longer.
void UnigramModel::FillNodes(absl::string_view piece, std::vector<Node>& nodes) const {
  nodes.assign(piece.size() + 1, Node());
  for (size_t first = 0; first < piece.size();) {
    const size_t character_bytes = NextCharacter(piece, first).length;
    const double score_here = nodes[first].score;
    bool has_single = false;
    const auto propose = [&](size_t end, double score, int32_t token) {
      Node& target = nodes[end];
      if (target.token != Node::kNone && score <= target.score) return;
      target = {.score = score, .first = static_cast<uint32_t>(first), .token = token};
    };
    uint32_t node = 0;
    for (size_t end = first; end < piece.size();) {
      const auto child = children_.find(uint64_t{node} << 8 | static_cast<uint8_t>(piece[end]));
      if (child == children_.end()) break;
      node = child->second;
      ++end;
      const int32_t token = token_of_node_[node];
      if (token == Node::kNone) continue;
      propose(end, scores_[static_cast<size_t>(token)] + score_here,
              token == fallback_.unknown_token() ? Node::kUnknown : token);
      has_single = has_single || end - first == character_bytes;
    }
    if (!has_single) {
      propose(first + character_bytes, unknown_score_ + score_here, Node::kUnknown);
    }
    first += character_bytes;
  }
}

// A run of unknown characters: a token if it happens to be one, bytes, or one unknown token.
void UnigramModel::AppendUnknown(absl::string_view text, std::vector<int32_t>& ids) const {
  const auto token = tokens_.find(text);
  if (token != tokens_.end()) {
    ids.push_back(token->second);
  } else if (fallback_.has_bytes()) {
    for (const char byte : text)
      ids.push_back(fallback_.byte_token(byte));
  } else {
    ids.push_back(fallback_.unknown_token());
  }
}

void UnigramModel::Encode(absl::string_view piece, Scratch& scratch,
                          std::vector<int32_t>& ids) const {
  FillNodes(piece, scratch.nodes);
  scratch.ends.clear();
  for (size_t end = piece.size(); end > 0; end = scratch.nodes[end].first)
    scratch.ends.push_back(static_cast<uint32_t>(end));
  size_t unknown_from = 0;  // where a run of unknown characters that is not told yet begins
  for (size_t i = scratch.ends.size(); i-- > 0;) {
    const uint32_t end = scratch.ends[i];
    const Node& node = scratch.nodes[end];
    const bool goes_on = i > 0 && scratch.nodes[scratch.ends[i - 1]].token == Node::kUnknown;
    if (node.token != Node::kUnknown) {
      ids.push_back(node.token);
    } else if (goes_on) {
      continue;
    } else {
      AppendUnknown(piece.substr(unknown_from, end - unknown_from), ids);
    }
    unknown_from = end;
  }
}

}  // namespace nightshift
