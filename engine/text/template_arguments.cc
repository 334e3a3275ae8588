#include "engine/text/template_arguments.h"

#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"

#include "engine/text/jinja/value.h"
#include "kernels/base/status_macros.h"
#include "kernels/base/utf8.h"

namespace nightshift {
namespace {

using nlohmann::ordered_json;

// The arguments are variables, each of which may be as deep as a value.
absl::Status CheckDepth(const ordered_json& json, int depth) {
  if (!json.is_structured()) return absl::OkStatus();
  if (depth > kMaxValueDepth) {
    return absl::InvalidArgumentError(absl::StrCat("nested more than ", kMaxValueDepth, " deep"));
  }
  for (const ordered_json& element : json)
    RETURN_IF_ERROR(CheckDepth(element, depth + 1));
  return absl::OkStatus();
}

}  // namespace

absl::Status CheckTemplateArguments(const ordered_json& arguments) {
  if (arguments.is_null()) return absl::OkStatus();
  if (!arguments.is_object()) {
    return absl::InvalidArgumentError(
        absl::StrCat("template arguments must be an object, are ", arguments.type_name()));
  }
  for (const char* name : {"messages", "add_generation_prompt", "bos_token", "eos_token",
                           "strftime_now", "raise_exception"}) {
    if (arguments.contains(name)) {
      return absl::InvalidArgumentError(
          absl::StrCat("template arguments cannot replace ", name, "; remove it"));
    }
  }
  return CheckDepth(arguments, 0);
}

absl::StatusOr<ordered_json> ParseTemplateArguments(absl::string_view text) {
  if (static_cast<int64_t>(text.size()) > kMaxTemplateArgumentBytes) {
    return absl::InvalidArgumentError(absl::StrCat("template arguments of ", text.size(),
                                                   " bytes, at most ", kMaxTemplateArgumentBytes));
  }
  const size_t invalid = FindInvalidUtf8(text);
  if (invalid != absl::string_view::npos) {
    return absl::InvalidArgumentError(
        absl::StrCat("template arguments are not valid UTF-8 at byte ", invalid));
  }
  ordered_json arguments =
      ordered_json::parse(text.begin(), text.end(), nullptr, /*allow_exceptions=*/false);
  if (arguments.is_discarded()) {
    return absl::InvalidArgumentError("template arguments are not one JSON object");
  }
  RETURN_IF_ERROR(CheckTemplateArguments(arguments));
  return arguments;
}

}  // namespace nightshift
