#include "server/scheduling/request_preparer.h"

#include <utility>

#include <sys/resource.h>
#include <unistd.h>

#include "absl/strings/str_cat.h"

#include "kernels/base/status_macros.h"
#include "server/input/request_parser.h"
#include "server/input/row_error.h"
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
  ASSIGN_OR_RETURN(const std::string bytes, job.input->ReadRow(row.offset, row.length));
  return ParseRow(job.input_format, bytes, limits);
}

ResultHeader MakeHeader(const ClaimedRow& row, const v1::InferenceRequest& request) {
  return {.index = row.index,
          .line = row.line,
          .custom_id = request.custom_id(),
          .form = request.form()};
}

absl::StatusOr<std::vector<int32_t>> Encode(const v1::InferenceRequest& request,
                                            const JobContext& job, const ModelText& text) {
  const EncodeOptions options =
      ResolvePromptOptions(job.spec.prompt_options(), request.prompt_options());
  switch (request.input_case()) {
    case v1::InferenceRequest::kPrompt:
      return text.encoder->EncodePrompt(request.prompt(), options);
    case v1::InferenceRequest::kChat:
      return text.encoder->EncodeChat(MessagesToJson(request.chat()), options);
    case v1::InferenceRequest::kTokens:
      return std::vector<int32_t>(request.tokens().ids().begin(), request.tokens().ids().end());
    case v1::InferenceRequest::INPUT_NOT_SET:
      break;
  }
  return absl::InvalidArgumentError("the request has no input");
}

// `what` says how many tokens the request wants; `prompt_tokens` of them are its prompt's.
absl::Status TooLong(const std::string& what, int64_t prompt_tokens, const ModelText& text) {
  return MakeError(
      absl::StatusCode::kInvalidArgument, reason::kPromptTooLong,
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
  return TooLong(absl::StrCat("the prompt has ", bytes, " bytes, at least ", least, " tokens"), least,
                 text);
}

absl::Status CheckTokens(const std::vector<int32_t>& tokens, const ModelText& text) {
  const int64_t count = static_cast<int64_t>(tokens.size());
  if (count == 0) {
    return RowError(reason::kInputMalformed, row_code::kInvalidValue, "",
                    "the prompt has no tokens");
  }
  if (count + 1 > text.context_tokens) {
    return TooLong(absl::StrCat("the prompt has ", count, " tokens and needs one for the output"),
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
  const bool asked = row.sampling().has_max_output_tokens() ||
                     task.job->spec.sampling().has_max_output_tokens();
  const int64_t count = static_cast<int64_t>(request.prompt.size());
  if (!asked || count + request.sampling.max_output_tokens <= task.text->context_tokens) {
    return absl::OkStatus();
  }
  return TooLong(absl::StrCat("the prompt has ", count, " tokens and max_tokens is ",
                              request.sampling.max_output_tokens),
                 count, *task.text);
}

absl::Status Prepare(const RowTask& task, const v1::InferenceRequest& row, EngineRequest& request) {
  RETURN_IF_ERROR(CheckBytes(row, *task.text));
  absl::StatusOr<std::vector<int32_t>> tokens = Encode(row, *task.job, *task.text);
  if (!tokens.ok()) {
    return RowError(reason::kInputMalformed, row_code::kInvalidValue, "",
                    std::string(tokens.status().message()));
  }
  RETURN_IF_ERROR(CheckTokens(*tokens, *task.text));
  request.prompt = *std::move(tokens);
  request.sampling = ResolveSampling(task.job->spec.sampling(), row.sampling(), task.row.index);
  if (!request.sampling.stop.empty() && task.text->encoder->tokenizer() == nullptr) {
    return RowError(reason::kFieldInvalid, row_code::kUnsupported, "stop",
                    "stop strings need a tokenizer, which the model does not have");
  }
  if (const absl::Status status = request.sampling.Validate(); !status.ok()) {
    return RowError(reason::kFieldOutOfRange, row_code::kInvalidValue, "",
                    std::string(status.message()));
  }
  return CheckOutput(task, row, request);
}

// The engine's threads go first: nice 10 is a tenth of their weight. SCHED_IDLE would starve the
// pool, and with it the engine, on a machine that others load too. Lowering is always allowed.
void YieldToEngine() {
  constexpr int kNice = 10;
  setpriority(PRIO_PROCESS, static_cast<id_t>(gettid()), kNice);
}

}  // namespace

PreparedRow PrepareRow(const RowTask& task, const ParseLimits& limits) {
  PreparedRow prepared;
  prepared.job = task.job;
  prepared.row = task.row;
  prepared.header = MakeHeader(task.row, {});
  absl::StatusOr<ParsedRow> parsed = ReadAndParse(*task.job, task.row, limits);
  if (!parsed.ok()) {
    prepared.status = parsed.status();
    return prepared;
  }
  prepared.header = MakeHeader(task.row, parsed->request);
  prepared.status = parsed->status.ok() ? Prepare(task, parsed->request, prepared.request)
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

void RequestPreparer::Work() {
  YieldToEngine();
  for (;;) {
    RowTask task;
    {
      MutexLock lock(mutex_);
      while (!stopping_ && (queued_.empty() || ready_tokens_ >= options_.max_ready_tokens)) {
        changed_.Wait(mutex_);
      }
      if (stopping_) {
        return;
      }
      task = std::move(queued_.front());
      queued_.pop_front();
      ++working_;
    }
    PreparedRow prepared = PrepareRow(task, options_.limits);
    {
      MutexLock lock(mutex_);
      --working_;
      ready_tokens_ += static_cast<int64_t>(prepared.request.prompt.size());
      ready_.push_back(std::move(prepared));
      changed_.NotifyAll();
    }
    if (options_.on_ready) {
      options_.on_ready();
    }
  }
}

}  // namespace nightshift
