#include "engine/policy/program_cache.h"

namespace nightshift {

absl::StatusOr<PlacementProgram> ProgramCache::Program(const BlockChoice& choice) const {
  const Key key = {
      choice.block_requests, choice.batch_requests, choice.chunk_tokens, choice.weights, choice.kv,
      choice.host_attention};
  const auto known = programs_.find(key);
  if (known != programs_.end()) {
    return known->second;
  }
  return programs_.emplace(key, model_.Program(choice)).first->second;
}

}  // namespace nightshift
