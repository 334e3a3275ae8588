#include "server/compression.h"

#include "engine/engine.h"
#include "kernels/group_format.h"

namespace nightshift {

const char* CompressionName(v1::CompressionChoice choice) {
  switch (choice) {
    case v1::COMPRESSION_CHOICE_NONE:
      return "none";
    case v1::COMPRESSION_CHOICE_INT8:
      return "int8";
    case v1::COMPRESSION_CHOICE_INT4:
      return "int4";
    case v1::COMPRESSION_CHOICE_AUTO:
      return "auto";
    default:
      return "the server's";
  }
}

std::optional<DType> KvTypeOf(v1::CompressionChoice choice) {
  switch (choice) {
    case v1::COMPRESSION_CHOICE_INT8:
      return DType::kU8G64;
    case v1::COMPRESSION_CHOICE_INT4:
      return DType::kU4G64;
    default:
      return std::nullopt;
  }
}

double SparseAttentionOf(const v1::JobSpec& spec) {
  return IsSparseAttention(spec.sparse_attention()) ? spec.sparse_attention() : 1.0;
}

v1::CompressionChoice CompressionOf(DType weights) {
  if (IsFloat(weights)) return v1::COMPRESSION_CHOICE_NONE;
  const std::optional<GroupFormat> format = GroupFormatOf(weights);
  if (!format) return v1::COMPRESSION_CHOICE_AUTO;
  return format->bits == 4 ? v1::COMPRESSION_CHOICE_INT4 : v1::COMPRESSION_CHOICE_INT8;
}

}  // namespace nightshift
