#include "engine/process/messages.h"

#include <concepts>
#include <type_traits>

#include "absl/strings/str_cat.h"

#include "engine/process/wire.h"

namespace nightshift {

template <>
struct WireEnum<CallKind> {
  static constexpr CallKind kFirst = CallKind::kCreate;
  static constexpr CallKind kLast = CallKind::kApplyPlan;
};
template <>
struct WireEnum<ComputeType> {
  static constexpr ComputeType kFirst = ComputeType::kF32;
  static constexpr ComputeType kLast = ComputeType::kInt8;
};
template <>
struct WireEnum<DType> {
  static constexpr DType kFirst = DType::kF32;
  static constexpr DType kLast = DType::kQ6K;
};
template <>
struct WireEnum<DiskBackend> {
  static constexpr DiskBackend kFirst = DiskBackend::kIoUring;
  static constexpr DiskBackend kLast = DiskBackend::kThreads;
};
template <>
struct WireEnum<ScheduleKind> {
  static constexpr ScheduleKind kFirst = ScheduleKind::kRow;
  static constexpr ScheduleKind kLast = ScheduleKind::kRolling;
};
template <>
struct WireEnum<WeightBuffering> {
  static constexpr WeightBuffering kFirst = WeightBuffering::kRing;
  static constexpr WeightBuffering kLast = WeightBuffering::kTwoLayers;
};
template <>
struct WireEnum<WeightChecks> {
  static constexpr WeightChecks kFirst = WeightChecks::kEveryRead;
  static constexpr WeightChecks kLast = WeightChecks::kFirstRead;
};
template <>
struct WireEnum<FinishReason> {
  static constexpr FinishReason kFirst = FinishReason::kNone;
  static constexpr FinishReason kLast = FinishReason::kLength;
};
template <>
struct WireEnum<StepKind> {
  static constexpr StepKind kFirst = StepKind::kReadWeights;
  static constexpr StepKind kLast = StepKind::kWriteActivations;
};
template <>
struct WireEnum<LaneId> {
  static constexpr LaneId kFirst = LaneId::kRead;
  static constexpr LaneId kLast = LaneId::kWrite;
};

// The struct itself, or const when it is written.
template <typename T, typename Struct>
concept Fields = std::same_as<std::remove_const_t<T>, Struct>;

template <typename Wire, Fields<TierShares> T>
void WalkFields(Wire& wire, T& value) {
  auto& [device, host] = value;
  wire(device, host);
}

template <typename Wire, Fields<TierOptions> T>
void WalkFields(Wire& wire, T& value) {
  auto& [device_budget_bytes, gpu, upload_bytes_per_s, download_bytes_per_s, device_flops_per_s,
         disk_budget_bytes, spill_folder, weights, kv, activations, schedule, buffering,
         weight_checks, overlap, host_attention] = value;
  wire(device_budget_bytes, gpu, upload_bytes_per_s, download_bytes_per_s, device_flops_per_s,
       disk_budget_bytes, spill_folder, weights, kv, activations, schedule, buffering,
       weight_checks, overlap, host_attention);
}

template <typename Wire, Fields<EngineOptions> T>
void WalkFields(Wire& wire, T& value) {
  auto& [pack_path, compute_type, kv_type, sparse_attention, num_threads, memory_budget_bytes,
         weight_budget_bytes, weight_ring_bytes, disk_backend, max_sweep_tokens, max_batch_tokens,
         prompt_chunk_tokens, max_block_requests, share_prefixes, tiers] = value;
  wire(pack_path, compute_type, kv_type, sparse_attention, num_threads, memory_budget_bytes,
       weight_budget_bytes, weight_ring_bytes, disk_backend, max_sweep_tokens, max_batch_tokens,
       prompt_chunk_tokens, max_block_requests, share_prefixes, tiers);
}

template <typename Wire, Fields<KvPageNeeds> T>
void WalkFields(Wire& wire, T& value) {
  auto& [page_positions, all, window, window_stretches] = value;
  wire(page_positions, all, window, window_stretches);
}

template <typename Wire, Fields<EngineInfo> T>
void WalkFields(Wire& wire, T& value) {
  auto& [model_digest, numeric_mode, device, context_tokens, vocabulary, max_block_requests,
         kv_budget_pages, kv_needs, weight_bytes, host_weight_bytes, streamed_weight_bytes,
         kv_budget_bytes] = value;
  wire(model_digest, numeric_mode, device, context_tokens, vocabulary, max_block_requests,
       kv_budget_pages, kv_needs, weight_bytes, host_weight_bytes, streamed_weight_bytes,
       kv_budget_bytes);
}

template <typename Wire, Fields<LogitBias> T>
void WalkFields(Wire& wire, T& value) {
  auto& [token, bias] = value;
  wire(token, bias);
}

template <typename Wire, Fields<TopLogprob> T>
void WalkFields(Wire& wire, T& value) {
  auto& [token, logprob] = value;
  wire(token, logprob);
}

template <typename Wire, Fields<TokenLogprob> T>
void WalkFields(Wire& wire, T& value) {
  auto& [token, logprob, top] = value;
  wire(token, logprob, top);
}

template <typename Wire, Fields<SamplingParams> T>
void WalkFields(Wire& wire, T& value) {
  auto& [max_output_tokens, min_output_tokens, temperature, top_p, top_k, min_p, repetition_penalty,
         presence_penalty, frequency_penalty, logit_bias, bad_words, ignore_eos, seed, request_key,
         choice, stop, stop_tokens, top_logprobs, want_logprobs, prompt_logprobs, scored_from,
         last_token_rivals] = value;
  wire(max_output_tokens, min_output_tokens, temperature, top_p, top_k, min_p, repetition_penalty,
       presence_penalty, frequency_penalty, logit_bias, bad_words, ignore_eos, seed, request_key,
       choice, stop, stop_tokens, top_logprobs, want_logprobs, prompt_logprobs, scored_from,
       last_token_rivals);
}

template <typename Wire, Fields<EngineRequest> T>
void WalkFields(Wire& wire, T& value) {
  auto& [id, prompt, generated, generated_logprobs, sampling, synthetic_context] = value;
  wire(id, prompt, generated, generated_logprobs, sampling, synthetic_context);
}

template <typename Wire, Fields<AdmitOutcome> T>
void WalkFields(Wire& wire, T& value) {
  auto& [id, status] = value;
  wire(id, status);
}

template <typename Wire, Fields<SweepRecord> T>
void WalkFields(Wire& wire, T& value) {
  auto& [id, token, finished, finish_reason, stop_reason, text, kept_tokens, prompt_logprobs,
         shared_tokens] = value;
  wire(id, token, finished, finish_reason, stop_reason, text, kept_tokens, prompt_logprobs,
       shared_tokens);
}

template <typename Wire, Fields<LaneTimes> T>
void WalkFields(Wire& wire, T& value) {
  auto& [busy_us, bytes, waited_us] = value;
  wire(busy_us, bytes, waited_us);
}

template <typename Wire, Fields<SweepTimes> T>
void WalkFields(Wire& wire, T& value) {
  auto& [sweeps, wall_us, lanes] = value;
  wire(sweeps, wall_us, lanes);
}

template <typename Wire, Fields<StepTimes> T>
void WalkFields(Wire& wire, T& value) {
  auto& [kind, lane, layer, batch, bytes, issue_us, start_us, end_us, waited_us] = value;
  wire(kind, lane, layer, batch, bytes, issue_us, start_us, end_us, waited_us);
}

template <typename Wire, Fields<ComputedSpan> T>
void WalkFields(Wire& wire, T& value) {
  auto& [batch, first_position, num_tokens] = value;
  wire(batch, first_position, num_tokens);
}

template <typename Wire, Fields<SweepResult> T>
void WalkFields(Wire& wire, T& value) {
  auto& [records, prompt_tokens, shared_tokens, output_tokens, spans, kv_pages, times, steps,
         evicted] = value;
  wire(records, prompt_tokens, shared_tokens, output_tokens, spans, kv_pages, times, steps,
       evicted);
}

template <typename Wire, Fields<EngineUsage> T>
void WalkFields(Wire& wire, T& value) {
  auto& [disk_read_bytes, disk_busy_us, disk_wait_us, memory_bytes, device_memory_bytes, kv_pages,
         times] = value;
  wire(disk_read_bytes, disk_busy_us, disk_wait_us, memory_bytes, device_memory_bytes, kv_pages,
       times);
}

template <typename Wire, Fields<EngineCall> T>
void WalkFields(Wire& wire, T& value) {
  auto& [kind, options, requests, ids] = value;
  wire(kind, options, requests, ids);
}

template <typename Wire, Fields<EngineAnswer> T>
void WalkFields(Wire& wire, T& value) {
  auto& [status, info, usage, num_held, outcomes, sweep, requests] = value;
  wire(status, info, usage, num_held, outcomes, sweep, requests);
}

namespace {

template <typename Message>
std::string Encode(const Message& message) {
  std::string bytes;
  WireWriter writer(bytes);
  writer(message);
  return bytes;
}

template <typename Message>
absl::StatusOr<Message> Decode(absl::string_view bytes, const char* what) {
  Message message;
  WireReader reader(bytes);
  reader(message);
  if (!reader.AtEnd()) {
    return absl::DataLossError(absl::StrCat("reading a message of ", bytes.size(), " bytes: it is no ",
                                            what));
  }
  return message;
}

}  // namespace

std::string EncodeCall(const EngineCall& call) {
  return Encode(call);
}

std::string EncodeAnswer(const EngineAnswer& answer) {
  return Encode(answer);
}

absl::StatusOr<EngineCall> DecodeCall(absl::string_view bytes) {
  return Decode<EngineCall>(bytes, "call of an engine");
}

absl::StatusOr<EngineAnswer> DecodeAnswer(absl::string_view bytes) {
  return Decode<EngineAnswer>(bytes, "answer of an engine");
}

}  // namespace nightshift
