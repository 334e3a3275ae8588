// Converts a checkpoint's tensors into a pack's shards, a panel of 64 outputs at a time.
#pragma once

#include <cstdint>
#include <functional>

#include "absl/status/status.h"

#include "engine/model/pack_writer.h"
#include "engine/model/tensor_map.h"
#include "engine/model/tensor_source.h"

namespace nightshift {

// Bytes that the extent will have.
int64_t ExtentBytesOf(const TensorMap& map);

// Called with the extent's bytes so far.
using ImportProgress = std::function<void(int64_t done_bytes)>;

// Writes all tensors in order, each as its TensorOrigin::stored. Memory: one shard and one panel of
// source rows, thrice where their type changes.
// Errors: DATA_LOSS from the source, FAILED_PRECONDITION from the disk, INVALID_ARGUMENT for
// weights that are not finite, or beyond what the type of the pack holds.
absl::Status WriteTensors(const TensorMap& map, const TensorSource& source, PackWriter& writer,
                          const ImportProgress& progress);

}  // namespace nightshift
