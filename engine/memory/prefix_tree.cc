#include "engine/memory/prefix_tree.h"

#include <algorithm>

#include "absl/container/flat_hash_set.h"

#include "kernels/kv_page.h"

namespace nightshift {
namespace {

constexpr int64_t kFirstStretches = 2;  // of the first node of a path; each other has one
constexpr size_t kLeastPruned = 1024;   // nodes

// Nodes whose last position is below `positions`: the whole ones of so many.
size_t WholeNodes(int64_t positions) {
  return static_cast<size_t>(
      std::max<int64_t>(0, positions / kPagePositions - (kFirstStretches - 1)));
}

// Of the first `nodes` nodes of a path.
int64_t StretchesOf(size_t nodes) {
  return nodes == 0 ? 0 : static_cast<int64_t>(nodes) + kFirstStretches - 1;
}

// The tokens of node `index` of a path.
std::span<const int32_t> TokensOf(std::span<const int32_t> tokens, size_t index) {
  const int64_t begin = StretchesOf(index) * kPagePositions;
  const int64_t end = StretchesOf(index + 1) * kPagePositions;
  return tokens.subspan(static_cast<size_t>(begin), static_cast<size_t>(end - begin));
}

}  // namespace

struct PrefixTree::Node {
  PrefixTree* tree = nullptr;
  const Node* parent = nullptr;
  size_t depth = 0;
  int64_t holders = 0;                  // paths through it
  int64_t takers = 0;                   // of those, that take pages
  uint64_t claimed = 0;                 // at this edge somebody was to compute it
  std::vector<OfferedStretch> offered;  // empty until it is computed

  int64_t num_stretches() const { return depth == 0 ? kFirstStretches : 1; }
  bool is_there(const KvCache& cache) const {
    return !offered.empty() &&
           std::all_of(offered.begin(), offered.end(), [&](const OfferedStretch& stretch) {
             const std::vector<OfferedPage>& pages =
                 stretch.full.empty() ? stretch.sliding : stretch.full;
             return !pages.empty() && cache.AreThere(pages);
           });
  }
  void AddTakers(int64_t change) {
    const bool was_shared = takers > 1;
    takers += change;
    const int64_t shared = (takers > 1 ? 1 : 0) - (was_shared ? 1 : 0);
    tree->shared_stretches_ += shared * num_stretches();
  }
};

PrefixTree::Path::~Path() {
  for (Node* node : nodes_) {
    --node->holders;
    node->AddTakers(takes_ ? -1 : 0);
  }
}

PrefixTree::Path::Path(Path&& other) noexcept {
  *this = std::move(other);
}

PrefixTree::Path& PrefixTree::Path::operator=(Path&& other) noexcept {
  std::swap(nodes_, other.nodes_);
  std::swap(takes_, other.takes_);
  return *this;
}

PrefixTree::PrefixTree(const KvCache& cache) : cache_(cache), prune_at_(kLeastPruned) {}

PrefixTree::~PrefixTree() = default;

PrefixTree::Path PrefixTree::Enter(std::span<const int32_t> tokens, bool takes) {
  if (nodes_.size() >= prune_at_) {
    Prune();
  }
  Path path;
  path.takes_ = takes;
  const size_t count = WholeNodes(static_cast<int64_t>(tokens.size()));
  const Node* parent = nullptr;
  for (size_t depth = 0; depth < count; ++depth) {
    const std::span<const int32_t> own = TokensOf(tokens, depth);
    std::unique_ptr<Node>& node = nodes_[Key{parent, {own.begin(), own.end()}}];
    if (node == nullptr) {
      node = std::make_unique<Node>();
      node->tree = this;
      node->parent = parent;
      node->depth = depth;
    }
    ++node->holders;
    node->AddTakers(takes ? 1 : 0);
    path.nodes_.push_back(node.get());
    parent = node.get();
  }
  return path;
}

int64_t PrefixTree::SharedStretches(const Path& path) {
  size_t count = 0;
  while (path.takes_ && count < path.nodes_.size() && path.nodes_[count]->takers > 1) {
    ++count;
  }
  return StretchesOf(count);
}

int64_t PrefixTree::SharedStretches(std::span<const int32_t> tokens) const {
  const size_t count = WholeNodes(static_cast<int64_t>(tokens.size()));
  const Node* parent = nullptr;
  size_t depth = 0;
  for (; depth < count; ++depth) {
    const std::span<const int32_t> own = TokensOf(tokens, depth);
    const auto found = nodes_.find(Key{parent, {own.begin(), own.end()}});
    if (found == nodes_.end() || found->second->takers == 0) {
      break;
    }
    parent = found->second.get();
  }
  return StretchesOf(depth);
}

int64_t PrefixTree::Take(const Path& path, int64_t computed_tokens, PageTable& pages) const {
  const size_t first = WholeNodes(computed_tokens);
  if (!path.takes_ || first >= path.nodes_.size() ||
      computed_tokens != StretchesOf(first) * kPagePositions) {
    return computed_tokens;
  }
  std::vector<const OfferedStretch*> offered;
  for (size_t i = first; i < path.nodes_.size() && !path.nodes_[i]->offered.empty(); ++i) {
    for (const OfferedStretch& stretch : path.nodes_[i]->offered) {
      offered.push_back(&stretch);
    }
  }
  const int64_t takeable = pages.CountTakeable(offered);
  if (first == 0 && takeable < kFirstStretches) {
    return computed_tokens;
  }
  pages.Take(std::span(offered).first(static_cast<size_t>(takeable)));
  return computed_tokens + takeable * kPagePositions;
}

bool PrefixTree::WaitsForOlder(const Path& path, int64_t computed_tokens) {
  const size_t first = WholeNodes(computed_tokens);
  const bool at_node = computed_tokens == StretchesOf(first) * kPagePositions;
  if (path.takes_ && at_node && first < path.nodes_.size() &&
      path.nodes_[first]->claimed == edge_) {
    return true;
  }
  for (size_t i = first; i < path.nodes_.size(); ++i) {
    path.nodes_[i]->claimed = edge_;
  }
  return false;
}

void PrefixTree::Offer(const Path& path, int64_t first_position, int64_t computed_tokens,
                       PageTable& pages) {
  const size_t end = std::min(path.nodes_.size(), WholeNodes(computed_tokens));
  for (size_t i = WholeNodes(first_position); i < end; ++i) {
    Node& node = *path.nodes_[i];
    node.offered.clear();
    for (int64_t stretch = StretchesOf(i); stretch < StretchesOf(i + 1); ++stretch) {
      node.offered.push_back(pages.Offer(stretch));
    }
  }
}

void PrefixTree::Prune() {
  std::vector<const Node*> nodes;
  for (const auto& [key, node] : nodes_) {
    nodes.push_back(node.get());
  }
  std::sort(nodes.begin(), nodes.end(),
            [](const Node* a, const Node* b) { return a->depth < b->depth; });
  absl::flat_hash_set<const Node*> stays = {nullptr};  // the parent of first nodes
  for (const Node* node : nodes) {
    if (node->holders > 0 || (stays.contains(node->parent) && node->is_there(cache_))) {
      stays.insert(node);
    }
  }
  for (auto entry = nodes_.begin(); entry != nodes_.end();) {
    if (stays.contains(entry->second.get())) {
      ++entry;
    } else {
      nodes_.erase(entry++);
    }
  }
  prune_at_ = std::max(kLeastPruned, 2 * nodes_.size());
}

}  // namespace nightshift
