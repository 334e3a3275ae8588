#include "server/rpc/compression.h"

#include <algorithm>
#include <string>

#include "absl/strings/str_cat.h"

#include "kernels/base/log.h"
#include "server/compression.h"
#include "server/input/rpc_error.h"

namespace nightshift {
namespace {

// The plan's choice, and why, in the log.
v1::CompressionChoice ChooseKv(const v1::JobSpec& spec, const CatalogModel& model,
                               const RpcContext& rpc) {
  const ComputeType compute = ComputeTypeOf(
      spec.compute_type(), ComputeTypeOf(rpc.default_compute_type, ComputeType::kBF16));
  const ModelKey key = {.model = model.name,
                        .compute_type = compute,
                        .sparse_attention = spec.has_sparse_attention()
                                                ? spec.sparse_attention()
                                                : rpc.default_sparse_attention};
  WorkloadProfile workload;
  workload.classes = {{.prompt_tokens = std::clamp<int64_t>(model.context_tokens / 2, 1, 512),
                       .output_tokens = std::clamp<int64_t>(model.context_tokens / 4, 0, 128),
                       .requests = 1000}};
  const absl::StatusOr<PolicyState> state =
      rpc.plan_for(key, workload,
                   {ComputedDType(compute), DType::kU8G64,
                    DType::kU4G64});
  v1::CompressionChoice choice = v1::COMPRESSION_CHOICE_NONE;
  std::string why = "packed keys and values are not predicted to be faster";
  if (!state.ok() || !state->plan.has_value()) {
    why = state.ok() ? state->reason : std::string(state.status().message());
  } else if (const std::optional<DType> kv = state->plan->options.kv_type; kv.has_value()) {
    choice = CompressionOf(*kv);
    why = absl::StrCat("predicted to take the least time, ", state->plan->predicted.seconds,
                       " s for 1000 requests");
  }
  LOG(INFO) << "kv_chosen model=" << model.name << " kv=" << CompressionName(choice) << " why=\""
            << why << "\"";
  return choice;
}

}  // namespace

absl::StatusOr<v1::Compression> ResolveCompression(const v1::JobSpec& spec,
                                                   const CatalogModel& model,
                                                   const RpcContext& rpc) {
  v1::Compression resolved;
  resolved.set_weights(CompressionOf(model.weights));
  const v1::CompressionChoice weights = spec.compression().weights();
  if (weights != v1::COMPRESSION_CHOICE_UNSPECIFIED && weights != v1::COMPRESSION_CHOICE_AUTO &&
      weights != resolved.weights()) {
    return MakeError(
        absl::StatusCode::kFailedPrecondition, reason::kModelUnavailable,
        absl::StrCat("spec.compression.weights is ", CompressionName(weights), ", model ",
                     model.name, " has weights in ", DTypeName(model.weights),
                     "; name a model that has them (`nightshift import --weights` makes one), or "
                     "auto"),
        {{"model", model.name}});
  }
  v1::CompressionChoice kv = spec.compression().kv();
  if (kv == v1::COMPRESSION_CHOICE_UNSPECIFIED) {
    kv = rpc.default_kv_type;
  }
  if (kv == v1::COMPRESSION_CHOICE_AUTO) {
    kv = rpc.allow_lossy ? ChooseKv(spec, model, rpc) : v1::COMPRESSION_CHOICE_NONE;
  }
  resolved.set_kv(kv);
  return resolved;
}

}  // namespace nightshift
