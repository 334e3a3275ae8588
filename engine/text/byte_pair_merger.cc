#include "engine/text/byte_pair_merger.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "kernels/base/status_macros.h"
#include "kernels/base/utf8.h"

namespace nightshift {
namespace {

// Places of tokens by falling score; equal scores share one.
std::vector<uint32_t> PrioritiesOfScores(const std::vector<double>& scores) {
  std::vector<size_t> order(scores.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::sort(order.begin(), order.end(), [&](size_t a, size_t b) { return scores[a] > scores[b]; });
  std::vector<uint32_t> priorities(scores.size());
  uint32_t priority = 0;
  for (size_t i = 0; i < order.size(); ++i) {
    if (i > 0 && scores[order[i]] != scores[order[i - 1]]) ++priority;
    priorities[order[i]] = priority;
  }
  return priorities;
}

size_t FirstCharacterBytes(absl::string_view text) {
  return NextCharacter(text, 0).length;
}

}  // namespace

BytePairMerger::BytePairMerger(const TokenizerSpec& spec, CharacterFallback fallback)
    : of_bytes_(spec.model == kByteBpe),
      ignores_merges_(spec.ignore_merges),
      vocabulary_(static_cast<int32_t>(spec.tokens.size())),
      fallback_(std::move(fallback)) {
  short_symbols_.fill(-1);
}

absl::StatusOr<std::unique_ptr<BytePairMerger>> BytePairMerger::Create(
    const TokenizerSpec& spec, const std::vector<bool>& usable) {
  ASSIGN_OR_RETURN(CharacterFallback fallback, CharacterFallback::Create(spec));
  std::unique_ptr<BytePairMerger> merger(new BytePairMerger(spec, std::move(fallback)));
  merger->AddAlphabet(spec, usable);
  if (spec.model == kScoredBpe) {
    merger->AddScoredMerges(spec, usable);
  } else {
    merger->AddRankedMerges(spec, usable);
  }
  merger->AddWholeTokens(spec, usable);
  return merger;
}

// Where two tokens have the same text, the later counts, as in a file that is read into a map.
void BytePairMerger::AddAlphabet(const TokenizerSpec& spec, const std::vector<bool>& usable) {
  for (size_t id = 0; id < usable.size(); ++id) {
    const std::string& token = spec.tokens[id];
    if (!usable[id]) continue;
    if (token.size() == 1) {
      short_symbols_[static_cast<uint8_t>(token[0])] = static_cast<int32_t>(id);
    } else if (!of_bytes_ && FirstCharacterBytes(token) == token.size()) {
      symbols_[token] = static_cast<int32_t>(id);
    }
  }
}

int32_t BytePairMerger::SymbolOf(absl::string_view character) const {
  if (character.size() == 1) return short_symbols_[static_cast<uint8_t>(character[0])];
  const auto symbol = symbols_.find(character);
  return symbol == symbols_.end() ? -1 : symbol->second;
}

// Tells the table which symbols meet where `left` and `right` are joined.
void BytePairMerger::AddNeighbours(absl::string_view left, absl::string_view right) {
  if (left.empty() || right.empty()) return;
  const size_t last = of_bytes_ ? left.size() - 1 : PreviousCharacter(left, left.size());
  const size_t length = of_bytes_ ? 1 : FirstCharacterBytes(right);
  const int32_t before = SymbolOf(left.substr(last));
  const int32_t behind = SymbolOf(right.substr(0, length));
  if (before >= 0 && behind >= 0) merges_.AddNeighbours(before, behind);
}

void BytePairMerger::AddRankedMerges(const TokenizerSpec& spec, const std::vector<bool>& usable) {
  const auto has_other_text = [&](int32_t id) {
    return id == spec.unknown_token ||
           (fallback_.has_bytes() && ByteOfToken(spec.tokens[static_cast<size_t>(id)]) >= 0);
  };
  merges_.Reserve(spec.merges.size());
  for (size_t rank = 0; rank < spec.merges.size(); ++rank) {
    const TokenizerSpec::Merge& merge = spec.merges[rank];
    if (!usable[static_cast<size_t>(merge.merged)]) continue;
    merges_.Add(merge.left, merge.right,
                {.priority = static_cast<uint32_t>(rank), .merged = merge.merged});
    AddNeighbours(spec.tokens[static_cast<size_t>(merge.left)],
                  spec.tokens[static_cast<size_t>(merge.right)]);
    if (has_other_text(merge.left) || has_other_text(merge.right)) cuts_ = false;
  }
}

// Each way to cut a token into two symbols is a merge. A character that only longer tokens hold is
// a symbol too.
void BytePairMerger::AddScoredMerges(const TokenizerSpec& spec, const std::vector<bool>& usable) {
  absl::flat_hash_map<absl::string_view, int32_t> ids;
  for (size_t id = 0; id < usable.size(); ++id) {
    if (usable[id]) ids[spec.tokens[id]] = static_cast<int32_t>(id);
  }
  const auto symbol_of = [&](absl::string_view text) -> int32_t {
    const auto id = ids.find(text);
    if (id != ids.end()) return id->second;
    if (FirstCharacterBytes(text) != text.size()) return -1;
    int32_t symbol = SymbolOf(text);
    if (symbol < 0) {
      symbol = vocabulary_ + static_cast<int32_t>(tokenless_.size());
      tokenless_.emplace_back(text);
      if (text.size() == 1) {
        short_symbols_[static_cast<uint8_t>(text[0])] = symbol;
      } else {
        symbols_.emplace(text, symbol);
      }
    }
    return symbol;
  };
  const std::vector<uint32_t> priorities = PrioritiesOfScores(spec.scores);
  for (const auto& [text, id] : ids) {
    for (size_t cut = FirstCharacterBytes(text); cut < text.size();
         cut += NextCharacter(text, cut).length) {
      const int32_t left = symbol_of(text.substr(0, cut));
      const int32_t right = symbol_of(text.substr(cut));
      if (left < 0 || right < 0) continue;
      merges_.Add(left, right, {.priority = priorities[static_cast<size_t>(id)], .merged = id});
      AddNeighbours(text.substr(0, cut), text.substr(cut));
    }
  }
}

void BytePairMerger::AddWholeTokens(const TokenizerSpec& spec, const std::vector<bool>& usable) {
  Scratch scratch;
  std::vector<int32_t> ids;
  whole_tokens_.reserve(usable.size());
  for (size_t id = 0; id < usable.size(); ++id) {
    if (!usable[id]) continue;
    const std::string& text = spec.tokens[id];
    ids.clear();
    MergePiece(text, scratch, ids);
    const bool is_merged = ids.size() == 1 && ids[0] == static_cast<int32_t>(id);
    if (!is_merged && !ignores_merges_) continue;
    whole_tokens_[text] = {.id = static_cast<int32_t>(id), .is_merged = is_merged};
    longest_token_ = std::max(longest_token_, text.size());
  }
}

void BytePairMerger::Encode(absl::string_view piece, Scratch& scratch,
                            std::vector<int32_t>& ids) const {
  if (piece.size() <= longest_token_) {
    const auto whole = whole_tokens_.find(piece);
    if (whole != whole_tokens_.end()) {
      ids.push_back(whole->second.id);
      return;
    }
  }
  MergePiece(piece, scratch, ids);
}

// Returns how many symbols there are; never more than bytes.
size_t BytePairMerger::LoadSymbols(absl::string_view piece,
                                   std::vector<MergeScratch::Symbol>& symbols) const {
  if (symbols.size() < piece.size()) symbols.resize(piece.size());
  size_t count = 0;
  bool after_unknown = false;
  for (size_t offset = 0; offset < piece.size();) {
    const auto byte = static_cast<uint8_t>(piece[offset]);
    const size_t length = of_bytes_ || byte < 0x80 ? 1 : NextCharacter(piece, offset).length;
    const absl::string_view character = piece.substr(offset, length);
    const auto add = [&](int32_t token) {
      symbols[count].token = token;
      symbols[count].offset = static_cast<uint32_t>(offset);
      ++count;
    };
    const int32_t symbol = SymbolOf(character);
    if (symbol >= 0) {
      add(symbol);
    } else if (fallback_.has_bytes()) {
      for (const char part : character)
        add(fallback_.byte_token(part));
    } else if (fallback_.unknown_token() >= 0 && !(after_unknown && fallback_.fuses_unknown())) {
      add(fallback_.unknown_token());
    }
    after_unknown = symbol < 0;
    offset += length;
  }
  return count;
}

void BytePairMerger::MergePiece(absl::string_view piece, Scratch& scratch,
                                std::vector<int32_t>& ids) const {
  auto& symbols = scratch.merging.symbols;
  const size_t count = LoadSymbols(piece, symbols);
  size_t first = 0;
  for (size_t i = 0; i < count; ++i) {
    const bool is_last = i + 1 == count;
    const MergeRule* rule =
        is_last ? nullptr : merges_.Find(symbols[i].token, symbols[i + 1].token);
    symbols[i].merge = rule == nullptr ? MergeRule() : *rule;
    if (!is_last && (rule != nullptr || !cuts_)) continue;
    const size_t begin = symbols[first].offset;
    const size_t end = is_last ? piece.size() : symbols[i + 1].offset;
    MergeStretch(piece.substr(begin, end - begin), first, i + 1, scratch, ids);
    first = i + 1;
  }
}

// `text` is what symbols [first, last) stand for.
void BytePairMerger::MergeStretch(absl::string_view text, size_t first, size_t last,
                                  Scratch& scratch, std::vector<int32_t>& ids) const {
  if (last - first > 1 && text.size() <= longest_token_) {
    const auto whole = whole_tokens_.find(text);
    if (whole != whole_tokens_.end() && whole->second.is_merged) {
      ids.push_back(whole->second.id);
      return;
    }
  }
  const size_t before = ids.size();
  MergeSymbols(merges_, first, last, scratch.merging, ids);
  if (tokenless_.empty()) return;
  scratch.tokens.assign(ids.begin() + static_cast<std::ptrdiff_t>(before), ids.end());
  ids.resize(before);
  for (const int32_t token : scratch.tokens) {
    if (token < vocabulary_) {
      ids.push_back(token);
    } else {
      AppendTokenless(token, ids);
    }
  }
}

void BytePairMerger::AppendTokenless(int32_t symbol, std::vector<int32_t>& ids) const {
  if (fallback_.has_bytes()) {
    for (const char byte : tokenless_[static_cast<size_t>(symbol - vocabulary_)])
      ids.push_back(fallback_.byte_token(byte));
  } else if (fallback_.unknown_token() >= 0) {
    ids.push_back(fallback_.unknown_token());
  }
}

}  // namespace nightshift
