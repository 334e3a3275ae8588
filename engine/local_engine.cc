#include "engine/local_engine.h"

#include <algorithm>
#include <cstring>
#include <iterator>
#include <optional>
#include <set>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

#include "engine/model/forward.h"
#include "engine/text/tokenizer_spec.h"
#include "kernels/base/check.h"
#include "kernels/base/status_macros.h"

namespace nightshift {
namespace {

// A request whose whole prompt is scored needs what is computed at each of its tokens.
bool TakesShared(const SamplingParams& sampling) {
  return !sampling.prompt_logprobs.has_value() || sampling.scored_from > 0;
}

absl::StatusOr<std::unique_ptr<Tokenizer>> LoadTokenizer(const Pack& pack) {
  if (!pack.manifest().has_tokenizer) {
    return std::unique_ptr<Tokenizer>();
  }
  ASSIGN_OR_RETURN(const std::string json, pack.ReadTokenizerJson());
  ASSIGN_OR_RETURN(TokenizerSpec spec, TokenizerSpecFromJson(json));
  return Tokenizer::Create(std::move(spec));
}

absl::Status CheckTokenIds(const char* what, const std::vector<int32_t>& tokens,
                           int64_t vocabulary) {
  for (size_t i = 0; i < tokens.size(); ++i) {
    if (tokens[i] < 0 || tokens[i] >= vocabulary) {
      return absl::InvalidArgumentError(absl::StrCat(what, " token ", i, " has id ", tokens[i],
                                                     "; the vocabulary has ", vocabulary));
    }
  }
  return absl::OkStatus();
}

// A GPU's bits are its own. Beside it the host's attention has others: tokens depend on placement.
const char* WhoAttends(const TierOptions& tiers) {
  if (!tiers.gpu.has_value()) return "/device";
  return tiers.host_attention ? "/cuda and host" : "/cuda";
}

// For people: where the model is and what computes it.
std::string DescribeDevice(const Device& device, const WeightStream* stream,
                           const WeightPlacement& weights) {
  if (stream == nullptr) {
    return device.description();
  }
  constexpr double kMiB = 1 << 20;
  const std::string on_host =
      weights.host_bytes == 0
          ? ""
          : absl::StrFormat(", %.0f MiB a sweep from the host",
                            static_cast<double>(weights.streamed_host_bytes) / kMiB);
  return absl::StrFormat("%s; weights: %.0f MiB in memory%s, %.0f MiB a sweep from disk by %s",
                         device.description(), static_cast<double>(weights.device_bytes) / kMiB,
                         on_host, static_cast<double>(weights.streamed_disk_bytes) / kMiB,
                         DiskBackendName(stream->reader().backend()));
}

}  // namespace

absl::StatusOr<std::unique_ptr<LocalEngine>> LocalEngine::Create(const EngineOptions& options) {
  ASSIGN_OR_RETURN(std::unique_ptr<Pack> pack, Pack::Open(options.pack_path));
  ASSIGN_OR_RETURN(MemoryPlan plan, PlanMemory(options, pack->manifest(), pack->path()));
  std::unique_ptr<LocalEngine> engine(new LocalEngine(std::move(pack)));
  ASSIGN_OR_RETURN(engine->tokenizer_, LoadTokenizer(*engine->pack_));
  RETURN_IF_ERROR(engine->SetUp(options, std::move(plan)));
  return engine;
}

LocalEngine::LocalEngine(std::unique_ptr<Pack> pack)
    : pack_(std::move(pack)), config_(pack_->manifest().config) {}

absl::Status LocalEngine::SetUp(const EngineOptions& options, MemoryPlan plan) {
  CHECK(held_.empty());
  TearDown();
  options_ = options;
  plan_ = std::move(plan);
  RETURN_IF_ERROR(CreateParts());
  info_ = Describe();
  return absl::OkStatus();
}

// What uses something goes before it.
void LocalEngine::TearDown() {
  executor_.reset();
  prefixes_.reset();
  cache_.reset();
  stream_.reset();
  weights_.reset();
  own_device_pool_.reset();
  host_pool_.reset();
  device_.reset();
}

EngineInfo LocalEngine::Describe() const {
  const WeightPlacement& weights = plan_.weights;
  const int64_t page_bytes = KvCache::PageBytes(cache_->layout(), cache_->layers());
  return {.model_digest = absl::StrCat(absl::Hex(pack_->manifest().digest, absl::kZeroPad16)),
          .numeric_mode = absl::StrCat(options_.NumericMode(), WhoAttends(options_.tiers)),
          .device = DescribeDevice(*device_, stream_.get(), weights),
          .context_tokens = config_.context_tokens,
          .vocabulary = config_.vocabulary,
          .max_block_requests = options_.max_block_requests,
          .kv_budget_pages = cache_->num_pages(),
          .kv_needs = cache_->layers().Needs(LongestSpan(options_)),
          .weight_bytes = weights.device_bytes,
          .host_weight_bytes = weights.host_bytes,
          .streamed_weight_bytes = weights.streamed_disk_bytes,
          .kv_budget_bytes = cache_->num_pages() * page_bytes};
}

absl::Status LocalEngine::CreateDevice() {
  const TierOptions& tiers = options_.tiers;
  if (tiers.unified_memory()) {
    ASSIGN_OR_RETURN(device_, CreateCpuDevice(options_.num_threads));
    return absl::OkStatus();
  }
  if (tiers.gpu.has_value()) {
    if (options_.sparse_attention < 1.0) {
      return absl::FailedPreconditionError(
          absl::StrCat("attend to a share of ", options_.sparse_attention, " of the values on GPU ",
                       *tiers.gpu, ": only the CPU does sparse attention"));
    }
    ASSIGN_OR_RETURN(device_, CreateCudaDevice({.gpu = *tiers.gpu,
                                                .compute_type = options_.compute_type,
                                                .memory_bytes = tiers.device_budget_bytes,
                                                .num_threads = options_.num_threads}));
    own_device_pool_ = std::make_unique<Pool>("device", tiers.device_budget_bytes,
                                              PoolHome{.arena = device_->arena()});
    return absl::OkStatus();
  }
  own_device_pool_ = std::make_unique<Pool>("device", tiers.device_budget_bytes);
  ASSIGN_OR_RETURN(device_,
                   CreateDiscreteCpuDevice({.num_threads = options_.num_threads,
                                            .upload_bytes_per_s = tiers.upload_bytes_per_s,
                                            .download_bytes_per_s = tiers.download_bytes_per_s,
                                            .flops_per_s = tiers.device_flops_per_s},
                                           clock_));
  return absl::OkStatus();
}

absl::Status LocalEngine::CreateParts() {
  const WeightStreamOptions stream_options = plan_.stream_options(options_);
  RETURN_IF_ERROR(CreateDevice());
  host_pool_ = std::make_unique<Pool>("host", options_.memory_budget_bytes,
                                      PoolHome{.copies = device_.get()});
  Pool& device_pool = own_device_pool_ == nullptr ? *host_pool_ : *own_device_pool_;
  ASSIGN_OR_RETURN(weights_,
                   ResidentWeights::Load(*pack_, plan_.weights, options_.compute_type,
                                         stream_options.disk, device_pool, *host_pool_, *device_));
  StreamShape shape;
  if (!plan_.weights.all_on_device()) {
    ASSIGN_OR_RETURN(stream_, WeightStream::Create(*pack_, plan_.weights, *weights_, stream_options,
                                                   device_pool, *host_pool_, *device_));
    shape.shards = StreamedShards(pack_->manifest(), plan_.weights);
    shape.host_ring_bytes = plan_.host_ring_bytes;
    shape.device_ring_bytes = plan_.device_ring_bytes;
  }
  ASSIGN_OR_RETURN(cache_, KvCache::Create(device_pool, *host_pool_, options_.tiers.spill_folder,
                                           KvLayoutOf(config_, options_.compute_type, options_.kv_type),
                                           KvLayers(config_), plan_.kv_pages));
  prefixes_ = std::make_unique<PrefixTree>(*cache_);
  ASSIGN_OR_RETURN(executor_, Executor::Create({.config = config_,
                                                .weights = weights_->weights(),
                                                .stream = stream_.get(),
                                                .stream_shape = std::move(shape),
                                                .cache = *cache_,
                                                .device = *device_,
                                                .compute_type = options_.compute_type,
                                                .sparse_attention = options_.sparse_attention,
                                                .device_pool = device_pool,
                                                .host_pool = *host_pool_,
                                                .spill_folder = options_.tiers.spill_folder,
                                                .disk = stream_options.disk},
                                               plan_.executor));
  return absl::OkStatus();
}

std::vector<AdmitOutcome> LocalEngine::Admit(std::vector<EngineRequest> requests) {
  std::vector<AdmitOutcome> outcomes;
  outcomes.reserve(requests.size());
  for (EngineRequest& request : requests) {
    const uint64_t id = request.id;
    if (!outcomes.empty() && absl::IsResourceExhausted(outcomes.back().status)) {
      outcomes.push_back({id, outcomes.back().status});
    } else {
      outcomes.push_back({id, AdmitOne(std::move(request))});
    }
  }
  return outcomes;
}

absl::Status LocalEngine::AdmitOne(EngineRequest request) {
  RETURN_IF_ERROR(CheckRequest(request));
  ASSIGN_OR_RETURN(Completion completion, RebuildCompletion(request));
  RETURN_IF_ERROR(CheckRoom(request));
  PrefixTree::Path prefix = prefixes_->Enter(Shareable(request), TakesShared(request.sampling));
  std::vector<int32_t> end_tokens = EndTokens(request.sampling);
  const bool is_whole = IsWhole(request);
  auto sequence =
      std::make_unique<Sequence>(request.id, std::move(request.sampling), std::move(completion),
                                 std::move(request.prompt), std::move(end_tokens), *cache_);
  for (const int32_t token : request.generated) {
    sequence->tokens.push_back(token);
    sequence->adjuster.Append(token);
  }
  sequence->logprobs = std::move(request.generated_logprobs);
  sequence->prefix = std::move(prefix);
  sequence->is_whole = is_whole;
  if (request.synthetic_context > 0) {
    RETURN_IF_ERROR(MakeUpContext(*sequence, request.synthetic_context));
  }
  held_.push_back(std::move(sequence));
  return absl::OkStatus();
}

absl::Status LocalEngine::MakeUpContext(Sequence& sequence, int64_t num_tokens) const {
  // About 0.01 in bf16 and in f32; as fp16 scales and minimums of codes about 0.004.
  const std::vector<std::byte> numbers(
      static_cast<size_t>(cache_->layout().page_bytes()),
      cache_->layout().is_packed() ? std::byte{0x1c} : std::byte{0x3c});
  if (num_tokens >= sequence.known_tokens()) {
    return absl::InvalidArgumentError(absl::StrCat(
        "admit request ", sequence.id, ": synthetic context of ", num_tokens, " tokens, known are ",
        sequence.known_tokens(), ", of which one must be left"));
  }
  RETURN_IF_ERROR(sequence.pages.Grow(num_tokens));
  for (int64_t stretch = 0; stretch < sequence.pages.num_stretches(); ++stretch) {
    for (int64_t layer = 0; layer < config_.num_layers; ++layer) {
      const std::optional<PagePlace> place = sequence.pages.PlaceOf(layer, stretch);
      if (place.has_value() && cache_->TierOf(place->id) != Tier::kDisk) {  // not written there: 0
        const std::span<std::byte> page(cache_->Page(place->slot, place->id), numbers.size());
        if (cache_->TierOf(place->id) == Tier::kHost) {
          std::copy(numbers.begin(), numbers.end(), page.begin());
        } else {
          RETURN_IF_ERROR(device_->Upload(numbers, page));
        }
      }
    }
  }
  Advance(sequence, num_tokens);
  return absl::OkStatus();
}

EngineUsage LocalEngine::Usage() const {
  EngineUsage usage;
  usage.memory_bytes = host_pool_->budget_bytes() - host_pool_->free_bytes();
  if (own_device_pool_ != nullptr) {
    usage.device_memory_bytes = own_device_pool_->budget_bytes() - own_device_pool_->free_bytes();
  }
  usage.kv_pages = cache_->num_pages() - cache_->free_pages();
  if (stream_ != nullptr) {
    const TransferCounts counts = stream_->reader().counts();
    usage.disk_read_bytes = counts.read_bytes;
    usage.disk_busy_us = counts.busy_us;
    usage.disk_wait_us = stream_->reader().wait_us() + times_.of(LaneId::kRead).waited_us;
  }
  usage.times = times_;
  return usage;
}

absl::Status LocalEngine::CheckRequest(const EngineRequest& request) const {
  for (const std::unique_ptr<Sequence>& sequence : held_) {
    if (sequence->id == request.id) {
      return absl::InvalidArgumentError(
          absl::StrCat("admit request ", request.id, ": a request with this id is held"));
    }
  }
  if (request.prompt.empty()) {
    return absl::InvalidArgumentError(
        absl::StrCat("admit request ", request.id, ": the prompt has no tokens"));
  }
  RETURN_IF_ERROR(CheckSampling(request.sampling));
  RETURN_IF_ERROR(CheckTokenIds("prompt", request.prompt, config_.vocabulary));
  RETURN_IF_ERROR(CheckTokenIds("generated", request.generated, config_.vocabulary));
  const int64_t prompt_tokens = static_cast<int64_t>(request.prompt.size());
  const bool wants_output = request.sampling.max_output_tokens > 0;
  if (prompt_tokens + (wants_output ? 1 : 0) > config_.context_tokens) {
    return absl::InvalidArgumentError(
        absl::StrCat("admit request ", request.id, ": the prompt has ", prompt_tokens,
                     " tokens; the context of ", config_.context_tokens,
                     wants_output ? " leaves room for no output" : " is shorter"));
  }
  if (request.sampling.scored_from >= prompt_tokens) {
    return absl::InvalidArgumentError(
        absl::StrCat("admit request ", request.id, ": its prompt of ", prompt_tokens,
                     " tokens is to be scored from token ", request.sampling.scored_from));
  }
  if (!request.generated_logprobs.empty() &&
      request.generated_logprobs.size() != request.generated.size()) {
    return absl::InvalidArgumentError(
        absl::StrCat("admit request ", request.id, ": ", request.generated.size(),
                     " generated tokens have ", request.generated_logprobs.size(), " logprobs"));
  }
  if (tokenizer_ == nullptr && !request.sampling.stop.empty()) {
    return absl::InvalidArgumentError(
        absl::StrCat("admit request ", request.id,
                     ": stop strings need a tokenizer, which this pack does not have"));
  }
  return absl::OkStatus();
}

absl::Status LocalEngine::CheckSampling(const SamplingParams& sampling) const {
  RETURN_IF_ERROR(sampling.Validate());
  std::vector<int32_t> biased;
  for (const LogitBias& bias : sampling.logit_bias) {
    biased.push_back(bias.token);
  }
  RETURN_IF_ERROR(CheckTokenIds("logit_bias", biased, config_.vocabulary));
  RETURN_IF_ERROR(
      CheckTokenIds("last_token_rivals", sampling.last_token_rivals, config_.vocabulary));
  std::set<int32_t> bannable;
  for (const int32_t token : EndTokens(sampling)) {
    bannable.insert(token);
  }
  for (const std::vector<int32_t>& word : sampling.bad_words) {
    RETURN_IF_ERROR(CheckTokenIds("bad_words", word, config_.vocabulary));
    bannable.insert(word.back());
  }
  if (static_cast<int64_t>(bannable.size()) >= config_.vocabulary) {
    return absl::InvalidArgumentError(
        absl::StrCat("bad_words and what ends a completion cover all ", config_.vocabulary,
                     " tokens of the vocabulary; leave one"));
  }
  return absl::OkStatus();
}

std::vector<int32_t> LocalEngine::EndTokens(const SamplingParams& sampling) const {
  std::vector<int32_t> tokens = sampling.stop_tokens;
  if (!sampling.ignore_eos) {
    tokens.insert(tokens.end(), config_.eos_tokens.begin(), config_.eos_tokens.end());
  }
  std::erase_if(tokens, [&](int32_t token) { return token >= config_.vocabulary; });
  return tokens;
}

absl::StatusOr<Completion> LocalEngine::RebuildCompletion(const EngineRequest& request) const {
  const SamplingParams& sampling = request.sampling;
  StopRules rules{
      .stop_tokens = sampling.stop_tokens,
      .model_end_tokens = sampling.ignore_eos ? std::vector<int32_t>() : config_.eos_tokens,
      .stop_strings = sampling.stop,
      .max_output_tokens = OutputTokensLimit(static_cast<int64_t>(request.prompt.size()), sampling),
      .min_output_tokens = sampling.min_output_tokens};
  Completion completion(tokenizer_.get(), std::move(rules));
  for (size_t i = 0; i < request.generated.size(); ++i) {
    if (completion.Append(request.generated[i]).has_value()) {
      return absl::InvalidArgumentError(absl::StrCat("admit request ", request.id,
                                                     ": it had finished with generated token ", i,
                                                     " of ", request.generated.size()));
    }
  }
  return completion;
}

absl::Status LocalEngine::CheckRoom(const EngineRequest& request) const {
  const int64_t prompt_tokens = static_cast<int64_t>(request.prompt.size());
  const int64_t output_limit = OutputTokensLimit(prompt_tokens, request.sampling);
  const int64_t whole_pages = MostPages(request);
  if (whole_pages > cache_->num_pages()) {
    return absl::InvalidArgumentError(absl::StrCat(
        "admit request ", request.id, ": ", prompt_tokens, " prompt and up to ", output_limit,
        " output tokens take ", whole_pages, " kv pages of ", kPagePositions,
        " positions; the whole budget is ", cache_->num_pages(), " pages"));
  }
  if (IsClosed()) {
    return absl::ResourceExhaustedError(
        absl::StrCat("admit request ", request.id, ": the block of ", num_held(),
                     " requests is closed until all of them have ended (schedule ",
                     ScheduleKindName(options_.tiers.schedule), ")"));
  }
  if (num_held() >= options_.max_block_requests) {
    return absl::ResourceExhaustedError(
        absl::StrCat("admit request ", request.id, ": asked 1 place of the block, free 0, budget ",
                     options_.max_block_requests));
  }
  int64_t committed = prefixes_->shared_stretches() * cache_->layers().ids_per_stretch();
  for (const std::unique_ptr<Sequence>& held : held_) {
    committed += PagesCommitted(*held);
  }
  const int64_t asked = PagesToCommit(request);
  if (committed + asked > cache_->num_pages()) {
    return absl::ResourceExhaustedError(absl::StrCat(
        "admit request ", request.id, ": asked ", asked, " kv pages, free ",
        std::max<int64_t>(0, cache_->num_pages() - committed), ", budget ", cache_->num_pages()));
  }
  return absl::OkStatus();
}

bool LocalEngine::IsWhole(const EngineRequest& request) const {
  // Beside all others' decode tokens there is room for it in some sweep.
  const int64_t most =
      std::min(LongestSpan(options_), options_.max_sweep_tokens - options_.max_block_requests + 1);
  return request.sampling.max_output_tokens == 0 && request.synthetic_context == 0 &&
         !TakesShared(request.sampling) && plan_.executor.kv.pages_per_slot == 0 &&
         static_cast<int64_t>(request.prompt.size()) <= most;
}

int64_t LocalEngine::MostPages(const EngineRequest& request) const {
  const int64_t prompt_tokens = static_cast<int64_t>(request.prompt.size());
  return IsWhole(request) ? PageTable::OneLayerPages(prompt_tokens, cache_->layers())
                          : info_.kv_needs.Most(prompt_tokens +
                                                OutputTokensLimit(prompt_tokens, request.sampling));
}

int64_t LocalEngine::PagesToCommit(const EngineRequest& request) const {
  if (IsWhole(request)) {
    return MostPages(request);
  }
  const int64_t shared =
      TakesShared(request.sampling) ? prefixes_->SharedStretches(Shareable(request)) : 0;
  const int64_t known = static_cast<int64_t>(request.prompt.size() + request.generated.size());
  const int64_t limit =
      static_cast<int64_t>(request.prompt.size()) +
      OutputTokensLimit(static_cast<int64_t>(request.prompt.size()), request.sampling);
  return info_.kv_needs.ToCommit(known, limit - known, shared);
}

int64_t LocalEngine::PagesCommitted(const Sequence& held) const {
  if (held.is_whole) {
    return PageTable::OneLayerPages(held.prompt_tokens, cache_->layers());
  }
  const int64_t limit = held.prompt_tokens + OutputTokensLimit(held.prompt_tokens, held.sampling);
  return info_.kv_needs.ToCommit(held.known_tokens(), limit - held.known_tokens(),
                                 PrefixTree::SharedStretches(held.prefix));
}

std::span<const int32_t> LocalEngine::Shareable(const EngineRequest& request) const {
  const size_t known_tokens = request.prompt.size() + request.generated.size();
  const bool shares =
      options_.share_prefixes && request.synthetic_context == 0 && !IsWhole(request);
  size_t tokens = shares ? std::min(request.prompt.size(), known_tokens - 1) : 0;
  if (request.sampling.prompt_logprobs.has_value() && TakesShared(request.sampling)) {
    // The row before the first scored token is its own.
    tokens = std::min(tokens, static_cast<size_t>(request.sampling.scored_from) - 1);
  }
  return std::span(request.prompt).first(tokens);
}

int64_t LocalEngine::OutputTokensLimit(int64_t prompt_tokens,
                                       const SamplingParams& sampling) const {
  return std::min(sampling.max_output_tokens, config_.context_tokens - prompt_tokens);
}

absl::StatusOr<SweepResult> LocalEngine::Sweep() {
  SweepResult result;
  result.shared_tokens = TakeSharedPages();
  const SweepSchedule schedule = ScheduleHeld();
  for (size_t i = 0; i < schedule.num_evicted; ++i) {
    result.evicted.push_back(TakeState(*held_.back()));
    held_.pop_back();
  }
  GrowPages(schedule);
  result.kv_pages = cache_->num_pages() - cache_->free_pages();
  result.spans = ComputedSpans(schedule);
  ASSIGN_OR_RETURN(SweepOutput tokens, executor_->Run(schedule, held_));
  result.times = tokens.times;
  result.steps = std::move(tokens.steps);
  times_.Add(tokens.times);
  TakeScored(schedule, std::move(tokens.scored));
  for (const Span& span : schedule.spans) {
    Sequence& sequence = *held_[span.request];
    Advance(sequence, span.num_tokens);
    result.prompt_tokens +=
        std::clamp<int64_t>(sequence.prompt_tokens - span.first_position, 0, span.num_tokens);
  }
  std::vector<size_t> finished;
  for (size_t i = 0; i < tokens.sampled.size(); ++i) {
    const size_t request = schedule.sampled[i].request;
    std::optional<TokenLogprob>& token = tokens.sampled[i];
    result.output_tokens += token.has_value() ? 1 : 0;
    result.records.push_back(token.has_value() ? AppendToken(*held_[request], *std::move(token))
                                               : FinishScored(*held_[request]));
    if (result.records.back().finished) {
      finished.push_back(request);
    }
  }
  for (const size_t request : finished) {
    held_[request].reset();
  }
  std::erase(held_, nullptr);
  return result;
}

int64_t LocalEngine::TakeSharedPages() {
  int64_t taken = 0;
  prefixes_->BeginEdge();
  for (const std::unique_ptr<Sequence>& sequence : held_) {
    const int64_t computed =
        prefixes_->Take(sequence->prefix, sequence->computed_tokens, sequence->pages);
    taken += computed - sequence->computed_tokens;
    sequence->shared_tokens += computed - sequence->computed_tokens;
    sequence->computed_tokens = computed;
    sequence->waits_for_prefix =
        prefixes_->WaitsForOlder(sequence->prefix, sequence->computed_tokens);
  }
  return taken;
}

bool LocalEngine::IsClosed() const {
  return options_.tiers.schedule != ScheduleKind::kRolling &&
         std::any_of(held_.begin(), held_.end(), [](const std::unique_ptr<Sequence>& sequence) {
           return sequence->computed_tokens > 0;
         });
}

SweepSchedule LocalEngine::ScheduleHeld() const {
  std::vector<HeldRequest> requests;
  requests.reserve(held_.size());
  std::vector<bool> seen(static_cast<size_t>(cache_->num_pages()), false);
  for (const std::unique_ptr<Sequence>& sequence : held_) {
    requests.push_back({.computed_tokens = sequence->computed_tokens,
                        .known_tokens = sequence->waits_for_prefix ? sequence->computed_tokens
                                                                   : sequence->tokens_to_compute(),
                        .pages = sequence->pages.CountUnseen(seen),
                        .whole_pages = sequence->is_whole ? PagesCommitted(*sequence) : 0});
  }
  return ScheduleSweep(requests, {.max_sweep_tokens = options_.max_sweep_tokens,
                                  .prompt_chunk_tokens = options_.prompt_chunk_tokens,
                                  .max_batch_tokens = plan_.executor.max_batch_tokens,
                                  .max_batch_pages = plan_.executor.kv.pages_per_slot,
                                  .free_pages = cache_->free_pages(),
                                  .pages_per_stretch = cache_->layers().ids_per_stretch()});
}

void LocalEngine::Advance(Sequence& sequence, int64_t num_tokens) {
  const int64_t first_position = sequence.computed_tokens;
  sequence.computed_tokens += num_tokens;
  PrefixTree::Offer(sequence.prefix, first_position, sequence.computed_tokens, sequence.pages);
  sequence.pages.DropBehind(sequence.computed_tokens);
}

void LocalEngine::GrowPages(const SweepSchedule& schedule) {
  for (const Span& span : schedule.spans) {
    // The schedule counted the pages.
    Sequence& sequence = *held_[span.request];
    const int64_t positions = span.first_position + span.num_tokens;
    CHECK((sequence.is_whole ? sequence.pages.GrowOneLayer(positions)
                             : sequence.pages.Grow(positions))
              .ok());
  }
}

std::vector<ComputedSpan> LocalEngine::ComputedSpans(const SweepSchedule& schedule) {
  std::vector<ComputedSpan> spans;
  for (size_t i = 0; i < schedule.batches.size(); ++i) {
    for (const Span& span : schedule.batches[i].spans) {
      spans.push_back({.batch = static_cast<int64_t>(i),
                       .first_position = span.first_position,
                       .num_tokens = span.num_tokens});
    }
  }
  return spans;
}

void LocalEngine::TakeScored(const SweepSchedule& schedule, std::vector<TokenLogprob> scored) {
  auto next = scored.begin();
  for (const Span& span : schedule.spans) {
    Sequence& sequence = *held_[span.request];
    std::vector<TokenLogprob>& target = sequence.prompt_logprobs;
    if (sequence.sampling.prompt_logprobs.has_value() && sequence.sampling.scored_from == 0 &&
        span.first_position == 0) {
      target.push_back({.token = sequence.tokens.front(), .logprob = 0.0F, .top = {}});
    }
    const auto end = next + ScoredRowsOf(span, sequence).num_scored();
    target.insert(target.end(), std::make_move_iterator(next), std::make_move_iterator(end));
    next = end;
  }
}

SweepRecord LocalEngine::FinishScored(Sequence& sequence) {
  SweepRecord record;
  record.id = sequence.id;
  record.finished = true;
  record.finish_reason = FinishReason::kLength;
  record.prompt_logprobs = std::move(sequence.prompt_logprobs);
  record.shared_tokens = sequence.shared_tokens;
  return record;
}

SweepRecord LocalEngine::AppendToken(Sequence& sequence, TokenLogprob token) {
  SweepRecord record;
  record.id = sequence.id;
  sequence.tokens.push_back(token.token);
  sequence.logprobs.push_back(token);
  sequence.adjuster.Append(token.token);
  std::optional<Ending> ending = sequence.completion.Append(token.token);
  record.token = std::move(token);
  if (ending.has_value()) {
    record.finished = true;
    record.finish_reason = ending->reason;
    record.stop_reason = std::move(ending->stop_reason);
    record.text = std::move(ending->text);
    record.kept_tokens = ending->kept_tokens;
    record.prompt_logprobs = std::move(sequence.prompt_logprobs);
    record.shared_tokens = sequence.shared_tokens;
  }
  return record;
}

EngineRequest LocalEngine::TakeState(Sequence& sequence) {
  const auto generated = sequence.tokens.begin() + sequence.prompt_tokens;
  EngineRequest request;
  request.id = sequence.id;
  request.prompt.assign(sequence.tokens.begin(), generated);
  request.generated.assign(generated, sequence.tokens.end());
  // Shorter when the request came with generated tokens and without their logprobs.
  if (sequence.logprobs.size() == request.generated.size()) {
    request.generated_logprobs = std::move(sequence.logprobs);
  }
  request.sampling = std::move(sequence.sampling);
  return request;
}

std::vector<EngineRequest> LocalEngine::Suspend(const std::vector<uint64_t>& ids) {
  std::vector<EngineRequest> suspended;
  for (std::unique_ptr<Sequence>& sequence : held_) {
    if (std::find(ids.begin(), ids.end(), sequence->id) != ids.end()) {
      suspended.push_back(TakeState(*sequence));
      sequence.reset();
    }
  }
  std::erase(held_, nullptr);
  return suspended;
}

void LocalEngine::Retire(const std::vector<uint64_t>& ids) {
  std::erase_if(held_, [&](const std::unique_ptr<Sequence>& sequence) {
    return std::find(ids.begin(), ids.end(), sequence->id) != ids.end();
  });
}

absl::StatusOr<std::vector<EngineRequest>> LocalEngine::ApplyPlan(const EngineOptions& options) {
  RETURN_IF_ERROR(options.Validate());
  if (options.pack_path != options_.pack_path ||
      options.NumericMode() != options_.NumericMode()) {
    return absl::InvalidArgumentError(absl::StrCat(
        "apply a plan for ", options.pack_path, " as ", options.NumericMode(),
        ": the engine runs ", options_.pack_path, " as ", options_.NumericMode(),
        "; another model or numeric mode is another engine"));
  }
  ASSIGN_OR_RETURN(MemoryPlan plan, PlanMemory(options, pack_->manifest(), pack_->path()));
  std::vector<EngineRequest> states;
  for (const std::unique_ptr<Sequence>& sequence : held_) {
    states.push_back(TakeState(*sequence));
  }
  held_.clear();
  const absl::Status set_up = SetUp(options, std::move(plan));
  if (absl::IsResourceExhausted(set_up) || absl::IsInvalidArgument(set_up)) {
    // What was there is gone: these codes would say that it is not.
    return absl::UnavailableError(set_up.message());
  }
  RETURN_IF_ERROR(set_up);
  std::vector<EngineRequest> suspended;
  for (EngineRequest& state : states) {
    // Behind one without room the younger ones wait, too.
    if (!suspended.empty() || !AdmitOne(state).ok()) {
      suspended.push_back(std::move(state));
    }
  }
  return suspended;
}

absl::StatusOr<std::vector<float>> LocalEngine::ForwardLogits(const std::vector<int32_t>& tokens) {
  CHECK(held_.empty());
  EngineRequest request;
  request.prompt = tokens;
  RETURN_IF_ERROR(AdmitOne(std::move(request)));
  std::vector<float> logits;
  Sequence& sequence = *held_.front();
  sequence.prefix = {};  // all of its tokens are computed
  while (sequence.computed_tokens < sequence.known_tokens()) {
    const SweepSchedule schedule = ScheduleHeld();
    GrowPages(schedule);
    ASSIGN_OR_RETURN(const std::vector<float> rows, executor_->ForwardLogits(schedule, held_));
    logits.insert(logits.end(), rows.begin(), rows.end());
    Advance(sequence, schedule.num_rows);
  }
  held_.clear();
  return logits;
}

}  // namespace nightshift
