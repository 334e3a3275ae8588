#include "engine/text/merge_table.h"

#include <algorithm>
#include <functional>

namespace nightshift {
namespace {

using Symbol = MergeScratch::Symbol;

constexpr uint32_t kEnd = 0xFFFFFFFF;
// Up to here, finding the best merge by looking at all is faster than keeping a heap.
constexpr size_t kMaxScanned = 32;

MergeRule FindMerge(const MergeTable& table, int32_t left, int32_t right) {
  const MergeRule* merge = table.Find(left, right);
  return merge == nullptr ? MergeRule() : *merge;
}

// Keeps the symbols dense: [symbols, symbols + count).
void MergeByScanning(const MergeTable& table, Symbol* symbols, size_t count,
                     std::vector<int32_t>& tokens) {
  while (count > 1) {
    size_t best = 0;
    for (size_t i = 1; i + 1 < count; ++i) {
      if (symbols[i].merge.priority < symbols[best].merge.priority) best = i;
    }
    if (!symbols[best].merge.exists()) break;
    symbols[best].token = symbols[best].merge.merged;
    std::copy(symbols + best + 2, symbols + count, symbols + best + 1);
    --count;
    symbols[best].merge = best + 1 < count
                              ? FindMerge(table, symbols[best].token, symbols[best + 1].token)
                              : MergeRule();
    if (best > 0) {
      symbols[best - 1].merge = FindMerge(table, symbols[best - 1].token, symbols[best].token);
    }
  }
  for (size_t i = 0; i < count; ++i)
    tokens.push_back(symbols[i].token);
}

// Keeps the symbols as a linked list and their merges in a heap. An entry of the heap is priority
// and position; it is stale unless the symbol there still has a merge of that priority.
class HeapMerger {
 public:
  HeapMerger(const MergeTable& table, Symbol* symbols, std::vector<uint64_t>& heap)
      : table_(table), symbols_(symbols), heap_(heap) {}

  void Run(size_t count, std::vector<int32_t>& tokens) {
    heap_.clear();
    for (size_t i = 0; i < count; ++i) {
      symbols_[i].previous = i == 0 ? kEnd : static_cast<uint32_t>(i - 1);
      symbols_[i].next = i + 1 == count ? kEnd : static_cast<uint32_t>(i + 1);
      if (i + 1 == count) symbols_[i].merge = MergeRule();
      if (symbols_[i].merge.exists()) heap_.push_back(Entry(i));
    }
    std::make_heap(heap_.begin(), heap_.end(), std::greater<>());
    while (!heap_.empty()) {
      std::pop_heap(heap_.begin(), heap_.end(), std::greater<>());
      const uint64_t best = heap_.back();
      heap_.pop_back();
      const auto position = static_cast<uint32_t>(best);
      if (symbols_[position].merge.priority == static_cast<uint32_t>(best >> 32)) Apply(position);
    }
    for (uint32_t i = 0; i != kEnd; i = symbols_[i].next)
      tokens.push_back(symbols_[i].token);
  }

 private:
  uint64_t Entry(size_t position) const {
    return uint64_t{symbols_[position].merge.priority} << 32 | position;
  }

  void Apply(uint32_t position) {
    Symbol& left = symbols_[position];
    Symbol& right = symbols_[left.next];
    left.token = left.merge.merged;
    left.next = right.next;
    right.merge = MergeRule();
    if (left.next != kEnd) symbols_[left.next].previous = position;
    Propose(position);
    if (left.previous != kEnd) Propose(left.previous);
  }

  void Propose(uint32_t position) {
    Symbol& left = symbols_[position];
    left.merge =
        left.next == kEnd ? MergeRule() : FindMerge(table_, left.token, symbols_[left.next].token);
    if (!left.merge.exists()) return;
    heap_.push_back(Entry(position));
    std::push_heap(heap_.begin(), heap_.end(), std::greater<>());
  }

  const MergeTable& table_;
  Symbol* symbols_;
  std::vector<uint64_t>& heap_;
};

}  // namespace

void MergeSymbols(const MergeTable& table, size_t first, size_t last, MergeScratch& scratch,
                  std::vector<int32_t>& tokens) {
  Symbol* symbols = scratch.symbols.data() + first;
  const size_t count = last - first;
  if (count <= kMaxScanned) {
    MergeByScanning(table, symbols, count, tokens);
  } else {
    HeapMerger(table, symbols, scratch.heap).Run(count, tokens);
  }
}

}  // namespace nightshift
