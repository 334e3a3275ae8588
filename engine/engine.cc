#include "engine/engine.h"

#include <charconv>
#include <iterator>
#include <string>

#include "absl/strings/str_cat.h"

#include "engine/local_engine.h"
#include "kernels/base/status_macros.h"
#include "kernels/kv_page.h"

namespace nightshift {
namespace {

absl::Status TooSmall(const char* option, int64_t value, int64_t least) {
  return absl::InvalidArgumentError(
      absl::StrCat("engine option ", option, " is ", value, "; must be at least ", least));
}

}  // namespace

absl::Status EngineOptions::Validate() const {
  if (pack_path.empty()) {
    return absl::InvalidArgumentError("engine option pack_path is empty");
  }
  if (num_threads < 0) {
    return TooSmall("num_threads", num_threads, 0);
  }
  if (memory_budget_bytes < 1) {
    return TooSmall("memory_budget_bytes", memory_budget_bytes, 1);
  }
  if (max_block_requests < 1) {
    return TooSmall("max_block_requests", max_block_requests, 1);
  }
  if (max_sweep_tokens < max_block_requests) {
    return absl::InvalidArgumentError(absl::StrCat(
        "engine option max_sweep_tokens is ", max_sweep_tokens,
        "; every request of the block has a ",
        "token in a sweep, so it must be at least max_block_requests, ", max_block_requests));
  }
  if (max_batch_tokens < 1) {
    return TooSmall("max_batch_tokens", max_batch_tokens, 1);
  }
  if (prompt_chunk_tokens < 0) {
    return TooSmall("prompt_chunk_tokens", prompt_chunk_tokens, 0);
  }
  if (kv_type.has_value() && !IsKvType(*kv_type, compute_type)) {
    return absl::InvalidArgumentError(absl::StrCat(
        "engine option kv_type is ", DTypeName(*kv_type), "; keys and values computed in ",
        ComputeTypeName(compute_type), " can be kept as such, as U4G64 or as U8G64"));
  }
  if (!IsSparseAttention(sparse_attention)) {
    return absl::InvalidArgumentError(absl::StrCat(
        "engine option sparse_attention is ", sparse_attention,
        "; it is the share of values that generated tokens attend to: above 0, at most 1 (all)"));
  }
  return tiers.Validate();
}

std::string EngineOptions::NumericMode() const {
  std::string mode = ComputeTypeName(compute_type);
  if (kv_type.has_value() && !IsFloat(*kv_type)) {
    absl::StrAppend(&mode, "/kv ", KvTypeName(*kv_type));
  }
  if (sparse_attention < 1.0) {
    // The shortest text of this number and no other one.
    char text[32];
    const std::to_chars_result end =
        std::to_chars(std::begin(text), std::end(text), sparse_attention);
    absl::StrAppend(&mode, "/sparse ", absl::string_view(text, end.ptr - std::begin(text)));
  }
  return mode;
}

absl::StatusOr<std::unique_ptr<Engine>> Engine::Create(const EngineOptions& options) {
  RETURN_IF_ERROR(options.Validate());
  return LocalEngine::Create(options);
}

}  // namespace nightshift
