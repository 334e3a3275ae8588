// FormBlock: who joins the block at a sweep edge. Pure: values in, values out.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace nightshift {

// A request that is ready to join.
struct BlockCandidate {
  int32_t priority = 0;            // of its job; higher first
  int64_t job_create_time_us = 0;  // older first
  int64_t index = 0;               // within the job
  int64_t choice = 0;              // of the row's completions
  int32_t attempt = 1;             // above 1: a block that held it has failed
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
// first, then by priority, age of the job, index and choice.
std::vector<size_t> FormBlock(std::span<const BlockCandidate> candidates, const BlockRoom& room);

}  // namespace nightshift
