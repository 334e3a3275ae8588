#include "client/evaluation_text.h"

#include <utility>

#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

#include "client/console.h"
#include "client/progress.h"

namespace nightshift {
namespace {

using Json = nlohmann::ordered_json;

void AddField(std::string& text, absl::string_view key, absl::string_view value) {
  absl::StrAppendFormat(&text, "%-10s  %s\n", key, OneLine(value));
}

double PerToken(double sum, const Divergence& divergence) {
  return divergence.tokens > 0 ? sum / static_cast<double>(divergence.tokens) : 0.0;
}

void AddModel(absl::string_view key, EvaluationTask task, const EvaluatedModel& model,
              std::string& text) {
  const Measure& measure = model.measure;
  AddField(text, key, absl::StrCat(model.model, ", ", model.numeric_mode));
  if (task == EvaluationTask::kNextWord) {
    AddField(text, "accuracy",
             absl::StrFormat("%.2f %% (%s of %s)", 100 * measure.accuracy(),
                             GroupedNumber(measure.correct), GroupedNumber(measure.items)));
  }
  AddField(text, "perplexity",
           absl::StrFormat("%.4g a token, %.4g a word; %.4f bits a byte", measure.perplexity(),
                           measure.word_perplexity(), measure.bits_per_byte()));
}

void AddDivergenceText(const Divergence& divergence, std::string& text) {
  if (divergence.tokens > 0) {
    AddField(text, "KL",
             absl::StrFormat("%.4g nats a token at least: of each model's 20 best tokens, and of "
                             "all others as one (%.1f %%)",
                             PerToken(divergence.kl, divergence),
                             100 * PerToken(divergence.rest, divergence)));
    AddField(text, "top-1",
             absl::StrFormat("%.2f %% the same",
                             100 * PerToken(static_cast<double>(divergence.agreeing), divergence)));
  }
  if (divergence.unlike_items > 0) {
    AddField(text, "not alike",
             absl::StrCat(GroupedNumber(divergence.unlike_items),
                          " rows have other tokens for the other model: not "
                          "compared"));
  }
}

const char* TaskName(EvaluationTask task) {
  return task == EvaluationTask::kNextWord ? "next-word" : "perplexity";
}

Json ModelJson(EvaluationTask task, const EvaluatedModel& model) {
  const Measure& measure = model.measure;
  Json json = {{"model", model.model},
               {"model_digest", model.model_digest},
               {"numeric_mode", model.numeric_mode},
               {"job", model.job},
               {"tokens", measure.tokens},
               {"logprob", measure.logprob},
               {"perplexity", measure.perplexity()},
               {"word_perplexity", measure.word_perplexity()},
               {"bits_per_byte", measure.bits_per_byte()}};
  if (task == EvaluationTask::kNextWord) {
    json["correct"] = measure.correct;
    json["accuracy"] = measure.accuracy();
  }
  return json;
}

}  // namespace

std::string EvaluationText(const EvaluationReport& report) {
  const Measure& measure = report.model.measure;
  std::string text;
  AddField(text, "task",
           absl::StrCat(TaskName(report.task), " of ", report.data, ": ",
                        GroupedNumber(measure.items), " rows, ", GroupedNumber(measure.words),
                        " words, ", GroupedNumber(measure.tokens), " tokens"));
  if (report.failed_rows > 0) {
    AddField(text, "failed",
             absl::StrCat(GroupedNumber(report.failed_rows), " of ", GroupedNumber(report.rows),
                          " rows, which are not measured"));
  }
  AddModel("model", report.task, report.model, text);
  if (report.reference.has_value()) {
    AddModel("against", report.task, *report.reference, text);
    AddDivergenceText(report.divergence, text);
  }
  return text;
}

std::string EvaluationJson(const EvaluationReport& report) {
  const Measure& measure = report.model.measure;
  Json json = {{"task", TaskName(report.task)},
               {"data", report.data},
               {"rows", report.rows},
               {"failed_rows", report.failed_rows},
               {"words", measure.words},
               {"bytes", measure.bytes},
               {"model", ModelJson(report.task, report.model)}};
  if (report.reference.has_value()) {
    const Divergence& divergence = report.divergence;
    json["against"] = ModelJson(report.task, *report.reference);
    json["compared_tokens"] = divergence.tokens;
    json["unlike_rows"] = divergence.unlike_items;
    json["kl"] = PerToken(divergence.kl, divergence);
    json["kl_rest"] = PerToken(divergence.rest, divergence);
    json["top1_agreement"] = PerToken(static_cast<double>(divergence.agreeing), divergence);
  }
  return json.dump(-1, ' ', false, Json::error_handler_t::replace) + "\n";
}

}  // namespace nightshift
