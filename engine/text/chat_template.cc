#include "engine/text/chat_template.h"

#include <utility>

#include "absl/strings/str_cat.h"

#include "engine/text/jinja/budget.h"
#include "engine/text/jinja/builtins.h"
#include "engine/text/jinja/conversions.h"
#include "engine/text/jinja/evaluator.h"
#include "engine/text/jinja/lexer.h"
#include "engine/text/jinja/parser.h"
#include "engine/text/template_arguments.h"
#include "kernels/base/status_macros.h"
#include "kernels/base/utf8.h"

namespace nightshift {

struct ChatTemplate::Program {
  std::string source;
  JinjaBlock block;
};

ChatTemplate::ChatTemplate(std::unique_ptr<const Program> program, const ChatTemplateLimits& limits)
    : program_(std::move(program)), limits_(limits) {}

ChatTemplate::~ChatTemplate() = default;

absl::StatusOr<std::unique_ptr<ChatTemplate>> ChatTemplate::Parse(const std::string& source,
                                                                  ChatTemplateLimits limits) {
  if (source.size() > static_cast<size_t>(limits.max_source_bytes)) {
    return absl::InvalidArgumentError(absl::StrCat("chat template of ", source.size(),
                                                   " bytes, at most ", limits.max_source_bytes));
  }
  const size_t invalid = FindInvalidUtf8(source);
  if (invalid != absl::string_view::npos) {
    return absl::InvalidArgumentError(
        absl::StrCat("chat template is not valid UTF-8 at byte ", invalid));
  }
  auto program = std::make_unique<Program>();
  program->source = NormalizeNewlines(source);
  ASSIGN_OR_RETURN(program->block, ParseJinja(program->source, limits.max_depth));
  return std::unique_ptr<ChatTemplate>(new ChatTemplate(std::move(program), limits));
}

absl::StatusOr<RenderedText> ChatTemplate::Render(const nlohmann::ordered_json& messages,
                                                  const RenderOptions& options) const {
  RETURN_IF_ERROR(CheckTemplateArguments(options.arguments));
  JinjaBudget budget(limits_.max_steps, limits_.max_work_bytes);
  JinjaEvaluator evaluator(program_->source, static_cast<size_t>(limits_.max_output_bytes),
                           options.now_us.value_or(0), budget);
  if (options.now_us.has_value()) {
    evaluator.Define("strftime_now", JinjaValue::Callable(StrftimeNow()));
  }
  for (auto argument = options.arguments.begin(); argument != options.arguments.end(); ++argument) {
    ASSIGN_OR_RETURN(
        JinjaValue value,
        FromJson(argument.value(), absl::StrCat("chat_template_kwargs.", argument.key())));
    evaluator.Define(argument.key(), std::move(value));
  }
  ASSIGN_OR_RETURN(JinjaValue list, FromJson(messages, "messages"));
  evaluator.Define("messages", std::move(list));
  evaluator.Define("add_generation_prompt", JinjaValue::Bool(options.add_generation_prompt));
  evaluator.Define("bos_token", JinjaValue::Text(options.bos_token, /*trusted=*/true));
  evaluator.Define("eos_token", JinjaValue::Text(options.eos_token, /*trusted=*/true));
  ASSIGN_OR_RETURN(const OriginText text, evaluator.Run(program_->block));
  return RenderedText{.text = text.text(), .trusted = text.trusted()};
}

}  // namespace nightshift
