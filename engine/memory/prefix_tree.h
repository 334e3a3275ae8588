// PrefixTree: which prompts begin alike, so that the keys and values of what they have in common
// are computed once and their pages shared.
//
// A node is a run of whole stretches of 32 positions behind those of its parent: a prompt is a path
// from the root. The first node of a path has 64 tokens, so that shorter beginnings, such as the
// first words of a chat template, hold nobody up. Prompts are compared token by token.
//
// The tree owns no page. A node knows which pages held its keys and values last; they can be taken
// as long as nobody else was given them (kv_cache.h), so what held requests have in common is
// always there, and what the last one left stays for the next as long as the room is not needed.
// Sliding layers: of a prefix, the pages in the window of what follows it must be there.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"

#include "engine/memory/kv_cache.h"

namespace nightshift {

// Used by one thread (the runner). The cache must outlive it; it must outlive its paths.
class PrefixTree {
 public:
  struct Node;

  // The whole stretches of the prompt of one held request. Leaves the tree when destroyed.
  class Path {
   public:
    Path() = default;
    ~Path();
    Path(Path&& other) noexcept;
    Path& operator=(Path&& other) noexcept;

   private:
    friend class PrefixTree;
    std::vector<Node*> nodes_;
    bool takes_ = false;
  };

  explicit PrefixTree(const KvCache& cache);
  ~PrefixTree();

  // The path of a request that begins with `tokens`. One that does not take pages computes its
  // whole prompt itself, for others too.
  Path Enter(std::span<const int32_t> tokens, bool takes);
  // Stretches that a path has in common with another that takes pages, both held.
  static int64_t SharedStretches(const Path& path);
  // Those that Enter(tokens, true) would have.
  int64_t SharedStretches(std::span<const int32_t> tokens) const;
  // Stretches that are in several held paths that take pages, each counted once.
  int64_t shared_stretches() const { return shared_stretches_; }
  // Those of held requests and of at most twice as many as there are pages, and 1,024.
  size_t num_nodes() const { return nodes_.size(); }

  // At the edge of a sweep, for the held requests from the oldest on, between two BeginEdge:
  void BeginEdge() { ++edge_; }
  // Takes from others what follows the computed positions, which are all that `pages` holds.
  // Returns the positions that are computed with that.
  int64_t Take(const Path& path, int64_t computed_tokens, PageTable& pages) const;
  // Whether an older request computes what is next in this path, so that it is to be waited for.
  // If not, this one computes it and what follows on its path.
  bool WaitsForOlder(const Path& path, int64_t computed_tokens);
  // After the sweep: others may take what the path's request has computed.
  static void Offer(const Path& path, int64_t first_position, int64_t computed_tokens,
                    PageTable& pages);

 private:
  using Key = std::pair<const Node*, std::vector<int32_t>>;  // parent, tokens

  // Forgets nodes of no held path whose pages, or those before them, hold something else.
  void Prune();

  const KvCache& cache_;
  absl::flat_hash_map<Key, std::unique_ptr<Node>> nodes_;
  size_t prune_at_ = 0;  // nodes
  int64_t shared_stretches_ = 0;
  uint64_t edge_ = 0;
};

}  // namespace nightshift
