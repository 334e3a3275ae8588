// What a job's compression becomes when it is accepted.
#pragma once

#include "absl/status/statusor.h"

#include "server/rpc/rpc_context.h"
#include "server/scheduling/model_catalog.h"

#include "nightshift/v1/jobs.pb.h"

namespace nightshift {

// NONE, INT8 or INT4 for both; weights of other bits stay AUTO. Keys and values of `auto`, where it
// may change numbers, are planned for by a job of 1000 requests of 512 + 128 tokens, or as many as
// the context has: what is stored does not depend on the queue. Takes a second then: for task
// threads.
// Errors: FAILED_PRECONDITION for weights that the model does not have, with how to make them.
absl::StatusOr<v1::Compression> ResolveCompression(const v1::JobSpec& spec,
                                                   const CatalogModel& model,
                                                   const RpcContext& rpc);

}  // namespace nightshift
