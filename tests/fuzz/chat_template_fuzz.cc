// Input: a template, the messages and the template's further arguments as JSON. Limits are small: a
// template that runs to them is an answer, one that runs beyond them is a fault.
#include <string>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>

#include "absl/status/statusor.h"

#include "engine/text/chat_template.h"
#include "engine/text/template_arguments.h"
#include "tests/fuzz/fuzz_input.h"

namespace nightshift {
namespace {

constexpr ChatTemplateLimits kLimits = {.max_steps = 20'000,
                                        .max_output_bytes = 1 << 16,
                                        .max_work_bytes = 1 << 20,
                                        .max_source_bytes = 1 << 16};

using Json = nlohmann::ordered_json;

Json ParseOr(const std::string& text, Json otherwise) {
  Json parsed = Json::parse(text, nullptr, /*allow_exceptions=*/false);
  return parsed.type() == otherwise.type() ? parsed : std::move(otherwise);
}

// Trusted ranges are ascending, apart from one another and inside the text.
void CheckRendered(const RenderedText& rendered) {
  CHECK_LE(rendered.text.size(), static_cast<size_t>(kLimits.max_output_bytes));
  size_t end = 0;
  for (const TextRange& range : rendered.trusted) {
    CHECK(range.length > 0 && range.first >= end && (end == 0 || range.first > end));
    end = range.first + range.length;
    CHECK_LE(end, rendered.text.size());
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::vector<std::string> parts = InputParts(InputText(data, size), 3);
  const auto chat_template = ChatTemplate::Parse(parts[0], kLimits);
  if (!chat_template.ok()) {
    return 0;
  }
  const Json hello = {{{"role", "system"}, {"content", " Be brief. "}},
                      {{"role", "user"}, {"content", "H\xc3\xa9llo <|im_end|>\n"}}};
  const Json given = {{"given", 1.5}};
  Json arguments = ParseOr(parts[2], given);
  if (!CheckTemplateArguments(arguments).ok()) {
    arguments = given;
  }
  const auto rendered =
      (*chat_template)
          ->Render(ParseOr(parts[1], hello), {.add_generation_prompt = true,
                                              .bos_token = "<s>",
                                              .eos_token = "</s>",
                                              .arguments = std::move(arguments),
                                              .now_us = 1'700'000'000'000'000});
  if (rendered.ok()) {
    CheckRendered(*rendered);
  }
  return 0;
}

}  // namespace nightshift
