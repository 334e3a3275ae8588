#include "engine/text/byte_pair_merger.h"

#include <algorithm>
#include <limits>

namespace nightshift {
namespace {

constexpr uint32_t kEnd = std::numeric_limits<uint32_t>::max();
constexpr uint32_t kSwallowed = kEnd - 1;

uint64_t PairKey(int32_t left, int32_t right) {
  return uint64_t{static_cast<uint32_t>(left)} << 32 | static_cast<uint32_t>(right);
}

// Orders the heap: lowest rank first, of one rank the leftmost.
bool ComesLater(const BytePairMerger::Scratch::Candidate& a,
                const BytePairMerger::Scratch::Candidate& b) {
  return a.rank != b.rank ? a.rank > b.rank : a.position > b.position;
}

// Which tokens text may become: not special, not decode-only, not a hole of the vocabulary.
std::vector<bool> UsableTokens(const TokenizerSpec& spec, const std::vector<bool>& special) {
  std::vector<bool> usable(spec.tokens.size());
  for (size_t id = 0; id < usable.size(); ++id)
    usable[id] = !special[id] && !spec.tokens[id].empty();
  for (const int32_t id : spec.decode_only)
    usable[static_cast<size_t>(id)] = false;
  return usable;
}

}  // namespace

BytePairMerger::BytePairMerger(const TokenizerSpec& spec, const std::vector<bool>& special) {
  const std::vector<bool> usable = UsableTokens(spec, special);
  byte_tokens_.fill(spec.unknown_token);
  for (size_t id = 0; id < usable.size(); ++id) {
    if (usable[id] && spec.tokens[id].size() == 1) {
      byte_tokens_[static_cast<uint8_t>(spec.tokens[id][0])] = static_cast<int32_t>(id);
    }
  }
  merges_.reserve(spec.merges.size());
  for (size_t rank = 0; rank < spec.merges.size(); ++rank) {
    const TokenizerSpec::Merge& merge = spec.merges[rank];
    if (!usable[static_cast<size_t>(merge.merged)]) continue;
    merges_[PairKey(merge.left, merge.right)] = {.rank = static_cast<uint32_t>(rank),
                                                 .merged = merge.merged};
  }
  AddWholeTokens(spec, usable);
}

void BytePairMerger::AddWholeTokens(const TokenizerSpec& spec, const std::vector<bool>& usable) {
  Scratch scratch;
  std::vector<int32_t> ids;
  whole_tokens_.reserve(usable.size());
  for (size_t id = 0; id < usable.size(); ++id) {
    if (!usable[id]) continue;
    ids.clear();
    if (!spec.ignore_merges) Merge(spec.tokens[id], scratch, ids);
    if (spec.ignore_merges || (ids.size() == 1 && ids[0] == static_cast<int32_t>(id))) {
      whole_tokens_.emplace(spec.tokens[id], static_cast<int32_t>(id));
    }
  }
}

void BytePairMerger::Encode(absl::string_view piece, Scratch& scratch,
                            std::vector<int32_t>& ids) const {
  const auto whole = whole_tokens_.find(piece);
  if (whole != whole_tokens_.end()) {
    ids.push_back(whole->second);
  } else {
    Merge(piece, scratch, ids);
  }
}

void BytePairMerger::LoadSymbols(absl::string_view piece, Scratch& scratch) const {
  scratch.symbols.clear();
  scratch.symbols.reserve(piece.size());
  for (const char byte : piece) {
    const int32_t token = byte_tokens_[static_cast<uint8_t>(byte)];
    if (token < 0) continue;
    const auto position = static_cast<uint32_t>(scratch.symbols.size());
    scratch.symbols.push_back(
        {.token = token, .previous = position == 0 ? kEnd : position - 1, .next = position + 1});
  }
  if (!scratch.symbols.empty()) scratch.symbols.back().next = kEnd;
}

// Adds the merge of the symbol at `position` with the one behind it, if there is one, to the end of
// the heap's storage. Whether the heap is in order is the caller's business.
void BytePairMerger::Propose(size_t position, Scratch& scratch) const {
  const Scratch::Symbol& left = scratch.symbols[position];
  if (left.next == kEnd) return;
  const int32_t right = scratch.symbols[left.next].token;
  const auto merge = merges_.find(PairKey(left.token, right));
  if (merge == merges_.end()) return;
  scratch.heap.push_back({.rank = merge->second.rank,
                          .position = static_cast<uint32_t>(position),
                          .left = left.token,
                          .right = right,
                          .merged = merge->second.merged});
}

void BytePairMerger::Merge(absl::string_view piece, Scratch& scratch,
                           std::vector<int32_t>& ids) const {
  LoadSymbols(piece, scratch);
  auto& symbols = scratch.symbols;
  auto& heap = scratch.heap;
  heap.clear();
  for (size_t i = 0; i < symbols.size(); ++i)
    Propose(i, scratch);
  std::make_heap(heap.begin(), heap.end(), ComesLater);
  const auto propose = [&](size_t position) {
    const size_t before = heap.size();
    Propose(position, scratch);
    if (heap.size() > before) std::push_heap(heap.begin(), heap.end(), ComesLater);
  };
  while (!heap.empty()) {
    std::pop_heap(heap.begin(), heap.end(), ComesLater);
    const Scratch::Candidate best = heap.back();
    heap.pop_back();
    Scratch::Symbol& left = symbols[best.position];
    // Stale: one of the two has been merged with another neighbour since.
    if (left.next >= kSwallowed || left.token != best.left) continue;
    Scratch::Symbol& right = symbols[left.next];
    if (right.token != best.right) continue;
    left.token = best.merged;
    left.next = right.next;
    right.next = kSwallowed;
    if (left.next != kEnd) symbols[left.next].previous = best.position;
    propose(best.position);
    if (left.previous != kEnd) propose(left.previous);
  }
  for (const Scratch::Symbol& symbol : symbols) {
    if (symbol.next != kSwallowed) ids.push_back(symbol.token);
  }
}

}  // namespace nightshift
