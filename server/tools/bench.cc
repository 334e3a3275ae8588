#include "server/tools/bench.h"

#include <algorithm>
#include <fstream>
#include <random>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"

#include "kernels/base/status_macros.h"

namespace nightshift {
namespace {

constexpr int64_t kMany = 1 << 24;

absl::Status CheckRange(const char* name, int64_t value, int64_t low, int64_t high) {
  if (value >= low && value <= high) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(
      absl::StrCat("--", name, " is ", value, ", must be ", low, " to ", high));
}

// Prompts of random ids: no two share a prefix.
std::vector<EngineRequest> MakeRequests(const BenchOptions& options, int64_t vocabulary) {
  std::mt19937_64 random(options.seed);
  std::uniform_int_distribution<int32_t> draw(0, static_cast<int32_t>(vocabulary) - 1);
  const int64_t num_generated =
      options.start_context > 0
          ? std::max<int64_t>(0, options.start_context + 1 - options.prompt_tokens)
          : 0;
  std::vector<EngineRequest> requests(static_cast<size_t>(options.requests));
  for (size_t i = 0; i < requests.size(); ++i) {
    EngineRequest& request = requests[i];
    request.id = i + 1;
    request.prompt.resize(static_cast<size_t>(options.prompt_tokens));
    std::generate(request.prompt.begin(), request.prompt.end(), [&] { return draw(random); });
    request.generated.resize(static_cast<size_t>(num_generated));
    std::generate(request.generated.begin(), request.generated.end(), [&] { return draw(random); });
    request.synthetic_context = options.start_context;
    request.sampling.temperature = 0.0F;
    request.sampling.max_output_tokens = options.output_tokens;
    if (options.output_tokens == 0) {
      request.sampling.prompt_logprobs = 0;
    }
    request.sampling.ignore_eos = true;
  }
  return requests;
}

// The most resident memory that the process has had.
int64_t PeakProcessBytes() {
  std::ifstream status("/proc/self/status");
  std::string line;
  while (std::getline(status, line)) {
    absl::string_view text = line;
    int64_t kilobytes = 0;
    if (absl::ConsumePrefix(&text, "VmHWM:") && absl::ConsumeSuffix(&text, "kB") &&
        absl::SimpleAtoi(text, &kilobytes)) {
      return kilobytes * 1024;
    }
  }
  return 0;
}

// One run: requests that wait, and what has been seen.
class Run {
 public:
  Run(const BenchOptions& options, Engine& engine, const Clock& clock)
      : options_(options),
        engine_(engine),
        clock_(clock),
        waiting_(MakeRequests(options, engine.info().vocabulary)),
        has_output_(waiting_.size(), options.start_context >= options.prompt_tokens) {}

  absl::StatusOr<BenchReport> ToItsEnd() {
    const int64_t start_us = clock_.MonotonicMicros();
    const EngineUsage before = engine_.Usage();
    while (!ended() && !cut()) {
      RETURN_IF_ERROR(AdmitWaiting());
      RETURN_IF_ERROR(SweepOnce());
    }
    report_.seconds = SecondsSince(start_us);
    report_.is_cut = options_.start_context > 0 || !ended();
    report_.usage = engine_.Usage();
    report_.usage.disk_read_bytes -= before.disk_read_bytes;
    report_.usage.disk_busy_us -= before.disk_busy_us;
    report_.usage.disk_wait_us -= before.disk_wait_us;
    report_.usage.times = times_;
    report_.steps = timeline_.steps();
    report_.engine = engine_.info();
    report_.peak_process_bytes = PeakProcessBytes();
    ShareTimes();
    return std::move(report_);
  }

 private:
  bool ended() const { return waiting_.empty() && engine_.num_held() == 0; }
  bool cut() const {
    return options_.sweeps > 0 && static_cast<int64_t>(report_.sweeps.size()) >= options_.sweeps;
  }
  double SecondsSince(int64_t start_us) const {
    return static_cast<double>(clock_.MonotonicMicros() - start_us) * 1e-6;
  }

  // Admits as many as there is room for.
  absl::Status AdmitWaiting() {
    std::vector<EngineRequest> refused;
    absl::Status refusal;
    const std::vector<AdmitOutcome> outcomes = engine_.Admit(waiting_);
    for (size_t i = 0; i < outcomes.size(); ++i) {
      if (absl::IsResourceExhausted(outcomes[i].status)) {
        refusal = outcomes[i].status;
        refused.push_back(std::move(waiting_[i]));
      } else {
        RETURN_IF_ERROR(outcomes[i].status);
      }
    }
    waiting_ = std::move(refused);
    return engine_.num_held() > 0 ? absl::OkStatus() : refusal;
  }

  absl::Status SweepOnce() {
    BenchSweep sweep;
    sweep.held = engine_.num_held();
    const EngineUsage before = engine_.Usage();
    const int64_t start_us = clock_.MonotonicMicros();
    ASSIGN_OR_RETURN(SweepResult result, engine_.Sweep());
    sweep.seconds = SecondsSince(start_us);
    const EngineUsage after = engine_.Usage();
    times_.Add(result.times);
    timeline_.Add(result.steps);
    sweep.prompt_tokens = result.prompt_tokens;
    sweep.output_tokens = result.output_tokens;
    sweep.disk_read_bytes = after.disk_read_bytes - before.disk_read_bytes;
    sweep.disk_busy_s = static_cast<double>(after.disk_busy_us - before.disk_busy_us) * 1e-6;
    sweep.disk_wait_s = static_cast<double>(after.disk_wait_us - before.disk_wait_us) * 1e-6;
    report_.peak_kv_pages = std::max({report_.peak_kv_pages, before.kv_pages, after.kv_pages});
    for (const SweepRecord& record : result.records) {
      report_.finished += record.finished ? 1 : 0;
      const size_t index = static_cast<size_t>(record.id) - 1;
      sweep.first_tokens += has_output_[index] || !record.token.has_value() ? 0 : 1;
      has_output_[index] = true;
    }
    report_.evictions += static_cast<int64_t>(result.evicted.size());
    std::move(result.evicted.begin(), result.evicted.end(), std::back_inserter(waiting_));
    report_.sweeps.push_back(sweep);
    return absl::OkStatus();
  }

  void ShareTimes() {
    for (const BenchSweep& sweep : report_.sweeps) {
      const int64_t decode_rows = sweep.output_tokens - sweep.first_tokens;
      const int64_t rows = std::max(sweep.prompt_tokens + decode_rows, int64_t{1});
      const double prompt_share =
          static_cast<double>(sweep.prompt_tokens) / static_cast<double>(rows);
      report_.prefill.tokens += sweep.prompt_tokens;
      report_.prefill.seconds += sweep.seconds * prompt_share;
      report_.decode.tokens += decode_rows;
      report_.decode.seconds += sweep.seconds * (1 - prompt_share);
    }
    const double prefill_rate = report_.prefill.tokens_per_s();
    const double decode_rate = report_.decode.tokens_per_s();
    const bool decodes = options_.output_tokens > 1;
    if (report_.is_cut && prefill_rate > 0 && (decode_rate > 0 || !decodes)) {
      const auto requests = static_cast<double>(options_.requests);
      const auto later_tokens = static_cast<double>(options_.output_tokens - 1);
      report_.projected_s = requests * static_cast<double>(options_.prompt_tokens) / prefill_rate +
                            (decodes ? requests * later_tokens / decode_rate : 0);
    }
  }

  const BenchOptions& options_;
  Engine& engine_;
  const Clock& clock_;
  std::vector<EngineRequest> waiting_;
  std::vector<bool> has_output_;  // of each request, by its id less 1
  SweepTimes times_;
  Timeline timeline_{kMaxTraceSteps};
  BenchReport report_;
};

}  // namespace

absl::Status BenchOptions::Validate() const {
  RETURN_IF_ERROR(CheckRange("requests", requests, 1, kMany));
  RETURN_IF_ERROR(CheckRange("prompt-tokens", prompt_tokens, 1, kMany));
  RETURN_IF_ERROR(CheckRange("output-tokens", output_tokens, 0, kMany));
  RETURN_IF_ERROR(CheckRange("sweeps", sweeps, 0, kMany));
  // One token must be left to compute, and one to come out; all of a prompt that is scored.
  const int64_t most_context =
      output_tokens > 0 ? std::max<int64_t>(0, prompt_tokens + output_tokens - 2) : 0;
  RETURN_IF_ERROR(CheckRange("start-context", start_context, 0, most_context));
  return absl::OkStatus();
}

double BenchRate::tokens_per_s() const {
  return tokens > 0 && seconds > 0 ? static_cast<double>(tokens) / seconds : 0;
}

absl::StatusOr<BenchReport> RunBench(const BenchOptions& options, Engine& engine,
                                     const Clock& clock, double load_s) {
  ASSIGN_OR_RETURN(BenchReport report, Run(options, engine, clock).ToItsEnd());
  report.load_s = load_s;
  return report;
}

}  // namespace nightshift
