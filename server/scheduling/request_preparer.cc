#include "server/scheduling/request_preparer.h"

#include <algorithm>
#include <utility>

#include <sys/resource.h>
#include <unistd.h>

#include "absl/strings/str_cat.h"

#include "engine/text/prompt_encoder.h"
#include "kernels/base/status_macros.h"
#include "kernels/base/thread_name.h"
#include "server/input/request_parser.h"
#include "server/input/row_error.h"
#include "server/scheduling/request_encoding.h"
#include "server/scheduling/request_options.h"

namespace nightshift {
namespace {

absl::StatusOr<ParsedRow> ReadAndParse(const JobContext& job, const ClaimedRow& row,
                                       const ParseLimits& limits) {
  if (row.length > limits.max_line_bytes) {
    ParsedRow refused;
    refused.status = RowError(
        reason::kPromptTooLong, row_code::kTooLong, "",
        absl::StrCat("the row has ", row.length, " bytes; the limit is ", limits.max_line_bytes));
    return refused;
  }
  ASSIGN_OR_RETURN(const std::string bytes, job.input->ReadRow(row.offset, row.length, row.crc));
  return ParseRow(job.input_format, bytes, limits);
}

ResultHeader MakeHeader(const ClaimedRow& row, const v1::InferenceRequest& request) {
  return {.index = row.index,
          .line = row.line,
          .custom_id = request.custom_id(),
          .form = request.form(),
          .metadata = request.metadata()};
}

absl::StatusOr<std::vector<int32_t>> EncodeRow(const v1::InferenceRequest& row,
                                               const JobContext& job, const ModelText& text,
                                               const std::string& continuation = "") {
  return EncodeRequest(row, job.spec.prompt_options(), job.create_time_us, text, continuation);
}

// `what` says how many tokens the request wants; `prompt_tokens` of them are its prompt's.
absl::Status TooLong(const std::string& what, int64_t prompt_tokens, const ModelText& text) {
  return MakeError(absl::StatusCode::kInvalidArgument, reason::kPromptTooLong,
                   absl::StrCat(what, "; the context of ", text.model, " is ", text.context_tokens),
                   {{"code", row_code::kTooLong},
                    {"promptTokens", absl::StrCat(prompt_tokens)},
                    {"contextTokens", absl::StrCat(text.context_tokens)}});
}

// Refuses a text that cannot fit before it is encoded: encoding takes about 34 bytes of memory for
// each byte of a text without spaces, and seconds for megabytes.
absl::Status CheckBytes(const v1::InferenceRequest& request, const ModelText& text) {
  const Tokenizer* tokenizer = text.encoder->tokenizer();
  if (tokenizer == nullptr) {
    return absl::OkStatus();
  }
  size_t bytes = request.prompt().size();
  for (const v1::ChatMessage& message : request.chat().messages()) {
    bytes += message.content().size();
  }
  const int64_t least = tokenizer->LeastTokens(static_cast<int64_t>(bytes));
  if (least < text.context_tokens) {
    return absl::OkStatus();
  }
  return TooLong(absl::StrCat("the prompt has ", bytes, " bytes, at least ", least, " tokens"),
                 least, text);
}

// `output_tokens` of them at least have to fit behind the prompt.
absl::Status CheckTokens(const std::vector<int32_t>& tokens, int64_t output_tokens,
                         const ModelText& text) {
  const int64_t count = static_cast<int64_t>(tokens.size());
  if (count == 0) {
    return RowError(reason::kInputMalformed, row_code::kInvalidValue, "",
                    "the prompt has no tokens");
  }
  if (count + output_tokens > text.context_tokens) {
    return TooLong(absl::StrCat("the prompt has ", count, " tokens and needs ", output_tokens,
                                " for the output"),
                   count, text);
  }
  for (const int32_t token : tokens) {
    if (token < 0 || token >= text.vocabulary) {
      return RowError(reason::kFieldOutOfRange, row_code::kInvalidValue, "",
                      absl::StrCat("the prompt has token id ", token, "; the vocabulary of ",
                                   text.model, " has ", text.vocabulary));
    }
  }
  return absl::OkStatus();
}

// A length that the caller asked for has to fit; the server's default is clipped to the context.
absl::Status CheckOutput(const RowTask& task, const v1::InferenceRequest& row,
                         const EngineRequest& request) {
  const bool asked =
      row.sampling().has_max_output_tokens() || task.job->spec.sampling().has_max_output_tokens();
  const int64_t count = static_cast<int64_t>(request.prompt.size());
  if (!asked || count + request.sampling.max_output_tokens <= task.text->context_tokens) {
    return absl::OkStatus();
  }
  return TooLong(absl::StrCat("the prompt has ", count, " tokens and max_tokens is ",
                              request.sampling.max_output_tokens),
                 count, *task.text);
}

// Ids of the options that the model does not have, before the engine meets them.
absl::Status CheckIds(const SamplingParams& sampling, const ModelText& text) {
  const auto check = [&](const char* param, int32_t token) {
    return token < text.vocabulary
               ? absl::OkStatus()
               : RowError(reason::kFieldOutOfRange, row_code::kInvalidValue, param,
                          absl::StrCat("has token id ", token, "; the vocabulary of ", text.model,
                                       " has ", text.vocabulary));
  };
  for (const LogitBias& bias : sampling.logit_bias) {
    RETURN_IF_ERROR(check("logit_bias", bias.token));
  }
  for (const std::vector<int32_t>& word : sampling.bad_words) {
    for (const int32_t token : word) {
      RETURN_IF_ERROR(check("bad_words", token));
    }
  }
  return absl::OkStatus();
}

absl::Status CheckLengths(const SamplingParams& sampling) {
  if (sampling.max_output_tokens == 0 && !sampling.prompt_logprobs.has_value()) {
    return RowError(reason::kFieldOutOfRange, row_code::kInvalidValue, "max_tokens",
                    "is 0, which only scores a prompt; needs prompt_logprobs, or echo with "
                    "logprobs");
  }
  if (sampling.min_output_tokens > sampling.max_output_tokens) {
    return RowError(reason::kFieldOutOfRange, row_code::kInvalidValue, "min_tokens",
                    absl::StrCat("is ", sampling.min_output_tokens, ", above max_tokens, ",
                                 sampling.max_output_tokens));
  }
  return absl::OkStatus();
}

absl::Status CheckChoices(const SamplingParams& sampling, int32_t num_choices) {
  if (num_choices > 1 && sampling.temperature == 0.0F) {
    return RowError(reason::kFieldInvalid, row_code::kInvalidValue, "n",
                    absl::StrCat("is ", num_choices,
                                 ", but at temperature 0 all would be the same; give a "
                                 "temperature"));
  }
  if (num_choices > 1 && sampling.max_output_tokens == 0) {
    return RowError(reason::kFieldInvalid, row_code::kInvalidValue, "n",
                    absl::StrCat("is ", num_choices, " while max_tokens is 0"));
  }
  return absl::OkStatus();
}

// Bounds what one prompt's log-probabilities take: at most 40 bytes an entry in memory and in the
// result.
absl::Status CheckPromptLogprobs(const SamplingParams& sampling, int64_t prompt_tokens) {
  constexpr int64_t kMaxEntries = 1 << 18;
  if (!sampling.prompt_logprobs.has_value()) {
    return absl::OkStatus();
  }
  const int64_t entries = prompt_tokens * (1 + *sampling.prompt_logprobs);
  if (entries <= kMaxEntries) {
    return absl::OkStatus();
  }
  return RowError(reason::kFieldOutOfRange, row_code::kInvalidValue, "",
                  absl::StrCat("log-probabilities of ", prompt_tokens, " prompt tokens with ",
                               *sampling.prompt_logprobs, " alternatives are ", entries,
                               " entries, at most ", kMaxEntries, "; ask for fewer alternatives"));
}

absl::StatusOr<SamplingParams> MakeSampling(const RowTask& task, const v1::InferenceRequest& row,
                                            const v1::SamplingOptions& options) {
  const Tokenizer* tokenizer = task.text->encoder->tokenizer();
  SamplingParams sampling = ResolveSampling(options, task.row.index);
  sampling.prompt_logprobs = ResolvePromptLogprobs(options, row);
  auto bad_words = EncodeBadWords(options, tokenizer);
  if (!bad_words.ok()) {
    return RowError(reason::kFieldInvalid, row_code::kUnsupported, "bad_words",
                    std::string(bad_words.status().message()));
  }
  sampling.bad_words.insert(sampling.bad_words.end(), bad_words->begin(), bad_words->end());
  if (!sampling.stop.empty() && tokenizer == nullptr) {
    return RowError(reason::kFieldInvalid, row_code::kUnsupported, "stop",
                    "stop strings need a tokenizer, which the model does not have");
  }
  RETURN_IF_ERROR(CheckLengths(sampling));
  if (const absl::Status status = sampling.Validate(); !status.ok()) {
    return RowError(reason::kFieldOutOfRange, row_code::kInvalidValue, "",
                    std::string(status.message()));
  }
  RETURN_IF_ERROR(CheckIds(sampling, *task.text));
  return sampling;
}

// The prompt as text: as it came, or what its tokens stand for.
std::string PromptText(const v1::InferenceRequest& row, const std::vector<int32_t>& tokens,
                       const Tokenizer* tokenizer) {
  if (row.has_prompt()) {
    return row.prompt();
  }
  return tokenizer == nullptr ? std::string() : tokenizer->Decode(tokens, /*skip_special=*/true);
}

PromptKey KeyOf(const RowTask& task) {
  return {.job_uid = task.job->uid,
          .job_rows = task.job->num_rows,
          .index = task.row.index,
          .text_digest = task.text->digest};
}

// Ids that came with the row need no keeping, but what is known of them.
void Keep(const PromptKey& key, const v1::InferenceRequest& row, const EngineRequest& request,
          KeptPrompts& kept) {
  const int64_t max_output_tokens = request.sampling.max_output_tokens;
  if (row.has_tokens()) {
    kept.KeepShape(key, MakePromptShape(request.prompt, max_output_tokens));
  } else {
    kept.Keep(key, request.prompt, max_output_tokens);
  }
}

// A row that scores choices. Its ids are not kept: what they are depends on all of the texts.
absl::Status PrepareScored(const RowTask& task, const v1::InferenceRequest& row, KeptPrompts* kept,
                           PreparedRow& prepared) {
  const ModelText& text = *task.text;
  EngineRequest& request = prepared.request;
  request.sampling =
      ScoringParams(MergeSampling(task.job->spec.sampling(), row.sampling()), task.row.index);
  RETURN_IF_ERROR(CheckBytes(row, text));
  absl::StatusOr<std::vector<int32_t>> prompt = EncodeRow(row, *task.job, text);
  if (!prompt.ok()) {
    return CannotEncode(row, prompt.status());
  }
  RETURN_IF_ERROR(CheckTokens(*prompt, 0, text));
  std::vector<std::vector<int32_t>> whole;
  for (const v1::Continuation& choice : row.choices()) {
    std::vector<int32_t>& tokens = whole.emplace_back(*prompt);
    if (choice.has_tokens()) {
      tokens.insert(tokens.end(), choice.tokens().ids().begin(), choice.tokens().ids().end());
    } else if (row.has_tokens()) {
      ASSIGN_OR_RETURN(const std::vector<int32_t> ids, EncodeAlone(choice.text(), text));
      tokens.insert(tokens.end(), ids.begin(), ids.end());
    } else {
      absl::StatusOr<std::vector<int32_t>> joint = EncodeRow(row, *task.job, text, choice.text());
      if (!joint.ok()) {
        return CannotEncode(row, joint.status());
      }
      tokens = *std::move(joint);
    }
    const int64_t count = static_cast<int64_t>(tokens.size());
    if (count > text.context_tokens) {
      return TooLong(
          absl::StrCat("the prompt and choices[", whole.size() - 1, "] have ", count, " tokens"),
          count, text);
    }
    RETURN_IF_ERROR(CheckTokens(tokens, 0, text));
  }
  ASSIGN_OR_RETURN(CommonPrompt common, SplitChoices(*std::move(prompt), std::move(whole)));
  request.prompt = std::move(common.prompt);
  request.sampling.scored_from = static_cast<int64_t>(request.prompt.size());
  int64_t scored_tokens = 0;
  for (size_t i = 0; i < common.rests.size(); ++i) {
    scored_tokens += static_cast<int64_t>(common.rests[i].size());
    prepared.scored.push_back(
        {.text = TextOfChoice(row.choices(static_cast<int>(i)), text.encoder->tokenizer()),
         .tokens = std::move(common.rests[i])});
  }
  prepared.num_choices = static_cast<int32_t>(prepared.scored.size());
  RETURN_IF_ERROR(CheckPromptLogprobs(request.sampling, scored_tokens));
  if (kept != nullptr) {
    kept->KeepShape(KeyOf(task), MakePromptShape(request.prompt, 0));
  }
  return absl::OkStatus();
}

absl::Status Prepare(const RowTask& task, const v1::InferenceRequest& row, KeptPrompts* kept,
                     PreparedRow& prepared) {
  if (!row.choices().empty()) {
    return PrepareScored(task, row, kept, prepared);
  }
  EngineRequest& request = prepared.request;
  const v1::SamplingOptions options = MergeSampling(task.job->spec.sampling(), row.sampling());
  ASSIGN_OR_RETURN(request.sampling, MakeSampling(task, row, options));
  prepared.num_choices = options.has_num_choices() ? options.num_choices() : 1;
  RETURN_IF_ERROR(CheckChoices(request.sampling, prepared.num_choices));
  RETURN_IF_ERROR(CheckBytes(row, *task.text));
  const PromptKey key = KeyOf(task);
  std::optional<std::vector<int32_t>> found;
  if (kept != nullptr && !row.has_tokens()) {
    found = kept->Find(key);
  }
  const bool was_kept = found.has_value();
  absl::StatusOr<std::vector<int32_t>> tokens =
      was_kept ? *std::move(found) : EncodeRow(row, *task.job, *task.text);
  if (!tokens.ok()) {
    return CannotEncode(row, tokens.status());
  }
  RETURN_IF_ERROR(
      CheckTokens(*tokens, std::min<int64_t>(1, request.sampling.max_output_tokens), *task.text));
  request.prompt = *std::move(tokens);
  RETURN_IF_ERROR(
      CheckPromptLogprobs(request.sampling, static_cast<int64_t>(request.prompt.size())));
  if (row.echo()) {
    prepared.echoed_prompt = PromptText(row, request.prompt, task.text->encoder->tokenizer());
  }
  RETURN_IF_ERROR(CheckOutput(task, row, request));
  if (kept != nullptr && !was_kept) {
    Keep(key, row, request, *kept);
  }
  return absl::OkStatus();
}

// The engine's threads go first: nice 10 is a tenth of their weight. SCHED_IDLE would starve the
// pool, and with it the engine, on a machine that others load too. Lowering is always allowed.
void YieldToEngine() {
  constexpr int kNice = 10;
  setpriority(PRIO_PROCESS, static_cast<id_t>(gettid()), kNice);
}

}  // namespace

PreparedRow PrepareRow(const RowTask& task, const ParseLimits& limits, KeptPrompts* kept) {
  PreparedRow prepared;
  prepared.job = task.job;
  prepared.row = task.row;
  prepared.share_tag = task.share_tag;
  prepared.header = MakeHeader(task.row, {});
  absl::StatusOr<ParsedRow> parsed = ReadAndParse(*task.job, task.row, limits);
  if (!parsed.ok()) {
    prepared.status = parsed.status();
    return prepared;
  }
  prepared.header = MakeHeader(task.row, parsed->request);
  prepared.status = parsed->status.ok() ? Prepare(task, parsed->request, kept, prepared)
                                        : std::move(parsed->status);
  return prepared;
}

absl::StatusOr<ResultHeader> ReadResultHeader(const JobContext& job, const ClaimedRow& row,
                                              const ParseLimits& limits) {
  ASSIGN_OR_RETURN(const ParsedRow parsed, ReadAndParse(job, row, limits));
  return MakeHeader(row, parsed.request);
}

RequestPreparer::RequestPreparer(RequestPreparerOptions options) : options_(std::move(options)) {
  for (int i = 0; i < options_.num_threads; ++i) {
    threads_.emplace_back([this] { Work(); });
  }
}

RequestPreparer::~RequestPreparer() {
  {
    MutexLock lock(mutex_);
    stopping_ = true;
    changed_.NotifyAll();
  }
  for (std::thread& thread : threads_) {
    thread.join();
  }
}

void RequestPreparer::Push(std::vector<RowTask> tasks) {
  MutexLock lock(mutex_);
  for (RowTask& task : tasks) {
    queued_.push_back(std::move(task));
  }
  changed_.NotifyAll();
}

std::vector<PreparedRow> RequestPreparer::TakeReady() {
  MutexLock lock(mutex_);
  ready_tokens_ = 0;
  changed_.NotifyAll();
  return std::exchange(ready_, {});
}

std::vector<RowTask> RequestPreparer::TakeQueued() {
  MutexLock lock(mutex_);
  std::vector<RowTask> tasks;
  for (RowTask& task : queued_) {
    tasks.push_back(std::move(task));
  }
  queued_.clear();
  return tasks;
}

void RequestPreparer::WaitUntilIdle() {
  MutexLock lock(mutex_);
  while (working_ > 0) {
    changed_.Wait(mutex_);
  }
}

int64_t RequestPreparer::num_rows() {
  MutexLock lock(mutex_);
  return static_cast<int64_t>(queued_.size() + ready_.size()) + working_;
}

std::vector<CheckedRow> RequestPreparer::Check(const std::vector<RowTask>& tasks) {
  Batch batch = {.tasks = tasks, .rows = std::vector<CheckedRow>(tasks.size())};
  MutexLock lock(mutex_);
  batch_ = &batch;
  changed_.NotifyAll();
  while (batch.working > 0 || HasUnchecked()) {
    changed_.Wait(mutex_);
  }
  batch_ = nullptr;
  return checks_stopped_ ? std::vector<CheckedRow>() : std::move(batch.rows);
}

void RequestPreparer::StopChecks() {
  MutexLock lock(mutex_);
  checks_stopped_ = true;
  changed_.NotifyAll();
}

bool RequestPreparer::HasClaimed() const {
  return !queued_.empty() && ready_tokens_ < options_.max_ready_tokens;
}

bool RequestPreparer::HasUnchecked() const {
  return batch_ != nullptr && !checks_stopped_ && batch_->next < batch_->tasks.size();
}

void RequestPreparer::Work() {
  NameThread("ns-prepare");
  YieldToEngine();
  MutexLock lock(mutex_);
  for (;;) {
    if (stopping_) {
      return;
    }
    if (HasClaimed()) {
      PrepareNext();
    } else if (HasUnchecked()) {
      CheckNext();
    } else {
      changed_.Wait(mutex_);
    }
  }
}

void RequestPreparer::PrepareNext() {
  const RowTask task = std::move(queued_.front());
  queued_.pop_front();
  ++working_;
  mutex_.Unlock();
  PreparedRow prepared = PrepareRow(task, options_.limits, options_.kept);
  mutex_.Lock();
  --working_;
  ready_tokens_ += static_cast<int64_t>(prepared.request.prompt.size()) * prepared.num_choices +
                   ScoredTokens(prepared.scored);
  ready_.push_back(std::move(prepared));
  changed_.NotifyAll();
  if (options_.on_ready) {
    mutex_.Unlock();
    options_.on_ready();
    mutex_.Lock();
  }
}

void RequestPreparer::CheckNext() {
  Batch& batch = *batch_;
  const size_t index = batch.next++;
  ++batch.working;
  mutex_.Unlock();
  PreparedRow prepared = PrepareRow(batch.tasks[index], options_.limits, options_.kept);
  mutex_.Lock();
  batch.rows[index] = {.header = std::move(prepared.header),
                       .prompt_tokens = static_cast<int64_t>(prepared.request.prompt.size()) +
                                        ScoredTokens(prepared.scored),
                       .status = std::move(prepared.status)};
  if (--batch.working == 0) {
    changed_.NotifyAll();
  }
}

}  // namespace nightshift
