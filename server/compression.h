// The compression and the sparse attention that a job asks for, as the wire has them.
#pragma once

#include <optional>

#include "kernels/dtype.h"

#include "nightshift/v1/jobs.pb.h"

namespace nightshift {

// "none", "int8", "int4", "auto".
const char* CompressionName(v1::CompressionChoice choice);

// The type of packed keys and values; nothing: as they are computed.
std::optional<DType> KvTypeOf(v1::CompressionChoice choice);

// Of a spec that is resolved. 1 for what its daemon did not write yet, and for what can be no share.
double SparseAttentionOf(const v1::JobSpec& spec);

// NONE, INT8 or INT4 by the bits of stored weights; AUTO for types of other bits.
v1::CompressionChoice CompressionOf(DType weights);

}  // namespace nightshift
