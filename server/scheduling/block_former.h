// FormBlock: who joins the block at a sweep edge, and who makes room. Pure: values in, values out.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "server/scheduling/row_order.h"

namespace nightshift {

// A request that is ready to join.
struct BlockCandidate {
  uint64_t job = 0;      // equal for those of one job
  int32_t priority = 0;  // of its job; higher first
  double share_tag = 0;  // of FairShare; lower first
  int64_t index = 0;     // within the job
  int64_t choice = 0;    // of the row's completions
  int32_t attempt = 1;   // above 1: a block that held it has failed
  // Of the whole prompt and what is left of the completion, as far as known.
  int64_t predicted_tokens = 0;
  // Of the prompt's first pages, each with those before it (HashPages).
  std::span<const uint64_t> pages = {};
};

// Places of the block. Whether memory is left for a request is the engine's to say.
struct BlockRoom {
  int64_t max_requests = 0;  // of a block
  int64_t held_requests = 0;
  // The highest attempt among those held; 0 when none is held.
  int32_t held_attempt = 0;
};

// A request that was in a failed block is a suspect: it may be what the engine stumbles over.
// Suspects run apart from the others, 16 at a time the first time and alone from then on, so that
// with the default of 3 attempts only the guilty one fails. Costs nothing while no block fails.
int64_t MaxRequestsOfAttempt(int32_t attempt, int64_t max_requests);

// Indices of the candidates that may join, in the order in which the engine is asked: suspects
// first, then by priority, then jobs in turn by their share tags; those of one job as LongestFirst
// says.
std::vector<size_t> FormBlock(std::span<const BlockCandidate> candidates, const BlockRoom& room);

// A request in the block.
struct BlockMember {
  int32_t priority = 0;
  int64_t computed_tokens = 0;  // what is lost and computed again when it makes room
};

// Indices of up to `wanted` requests that make room for one of `priority`: of lower priority, the
// lowest first, of those the ones that lose least.
std::vector<size_t> ChooseToSuspend(std::span<const BlockMember> held, int32_t priority,
                                    int64_t wanted);

}  // namespace nightshift
