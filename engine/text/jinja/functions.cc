// Global functions of chat templates.
#include <array>
#include <cstdint>
#include <ctime>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

#include "engine/text/jinja/access.h"
#include "engine/text/jinja/builtins.h"
#include "engine/text/jinja/conversions.h"
#include "engine/text/jinja/operations.h"
#include "kernels/base/status_macros.h"

namespace nightshift {
namespace {

using Kind = JinjaValue::Kind;

// As Jinja's sandbox.
constexpr int64_t kMaxRange = 100'000;
// A message is for a person to read.
constexpr size_t kMaxRaisedBytes = 1000;
constexpr size_t kMaxTimeFormatBytes = 200;

absl::StatusOr<JinjaValue> Range(JinjaContext& context, const JinjaValue& /*self*/,
                                 const JinjaArguments& arguments) {
  ASSIGN_OR_RETURN(int64_t start, arguments.Integer(0, 0));
  ASSIGN_OR_RETURN(int64_t stop, arguments.Integer(1, 0));
  ASSIGN_OR_RETURN(const int64_t step, arguments.Integer(2, 1));
  if (!arguments.Has(1)) std::swap(start, stop);
  if (step == 0) return absl::InvalidArgumentError("step is zero");
  std::vector<JinjaValue> numbers;
  for (int64_t i = start; step > 0 ? i < stop : i > stop;) {
    if (numbers.size() == static_cast<size_t>(kMaxRange)) {
      return absl::ResourceExhaustedError(
          absl::StrCat("range of more than ", kMaxRange, " numbers"));
    }
    numbers.push_back(JinjaValue::Integer(i));
    if (__builtin_add_overflow(i, step, &i)) break;
  }
  RETURN_IF_ERROR(context.budget.SpendSteps(numbers.size()));
  return JinjaValue::List(std::move(numbers), SequenceKind::kRange,
                          {.start = start, .stop = stop, .step = step});
}

// What Python's dict is made of: a mapping or a list of pairs, then names.
absl::StatusOr<std::vector<std::pair<JinjaValue, JinjaValue>>> EntriesOf(
    JinjaContext& context, const JinjaArguments& arguments) {
  std::vector<std::pair<JinjaValue, JinjaValue>> entries;
  if (arguments.given[0] && arguments[0].Is(Kind::kMapping)) {
    RETURN_IF_ERROR(context.budget.SpendSteps(arguments[0].mapping().entries.size()));
    entries = arguments[0].mapping().entries;
  } else if (arguments.given[0]) {
    if (arguments[0].Is(Kind::kUndefined)) return UseOfUndefined(arguments[0]);
    ASSIGN_OR_RETURN(const std::vector<JinjaValue> pairs, Elements(arguments[0], context.budget));
    for (const JinjaValue& pair : pairs) {
      ASSIGN_OR_RETURN(std::vector<JinjaValue> parts, Elements(pair, context.budget));
      if (parts.size() != 2) return absl::InvalidArgumentError("a mapping or pairs wanted");
      entries.emplace_back(std::move(parts[0]), std::move(parts[1]));
    }
  }
  for (const auto& [name, value] : arguments.rest.keywords)
    entries.emplace_back(JinjaValue::Text(name, /*trusted=*/true), value);
  if (!arguments.rest.positional.empty()) {
    return absl::InvalidArgumentError("one mapping and names wanted");
  }
  return entries;
}

absl::StatusOr<JinjaValue> Dict(JinjaContext& context, const JinjaValue& /*self*/,
                                const JinjaArguments& arguments) {
  ASSIGN_OR_RETURN(auto entries, EntriesOf(context, arguments));
  return JinjaValue::Mapping(std::move(entries));
}

absl::StatusOr<JinjaValue> MakeNamespace(JinjaContext& context, const JinjaValue& /*self*/,
                                         const JinjaArguments& arguments) {
  ASSIGN_OR_RETURN(const auto entries, EntriesOf(context, arguments));
  JinjaNamespace& space = *context.namespaces.emplace_back(std::make_unique<JinjaNamespace>());
  for (const auto& [key, value] : entries) {
    if (key.Is(Kind::kText)) space.values[key.text().text()] = value;
  }
  return JinjaValue::Namespace(&space);
}

// Python's strftime on the job's time in UTC, which knows no zone. Trusted if the format is.
absl::StatusOr<JinjaValue> TellTime(JinjaContext& context, const JinjaValue& /*self*/,
                                    const JinjaArguments& arguments) {
  ASSIGN_OR_RETURN(const OriginText* format, arguments.RequiredText(0));
  if (format->size() > kMaxTimeFormatBytes) {
    return absl::InvalidArgumentError(
        absl::StrCat("a format of ", format->size(), " bytes, at most ", kMaxTimeFormatBytes));
  }
  constexpr int64_t kMicroseconds = 1'000'000;
  int64_t fraction = context.now_us % kMicroseconds;
  if (fraction < 0) fraction += kMicroseconds;
  const time_t seconds = (context.now_us - fraction) / kMicroseconds;
  std::tm parts{};
  gmtime_r(&seconds, &parts);
  // What C's strftime lacks or writes for a zone.
  std::string rewritten;
  const std::string& text = format->text();
  for (size_t i = 0; i < text.size(); ++i) {
    const char directive = text[i] == '%' && i + 1 < text.size() ? text[i + 1] : '\0';
    if (directive == 'f') {
      absl::StrAppendFormat(&rewritten, "%06d", fraction);
    } else if (directive != 'z' && directive != 'Z') {
      rewritten.push_back(text[i]);
      if (directive == '\0') continue;
      rewritten.push_back(directive);
    }
    if (directive != '\0') ++i;
  }
  if (rewritten.find('\0') != std::string::npos) {
    return absl::InvalidArgumentError("a format with a NUL character");
  }
  // The longest directive, %c, writes fewer than 64 bytes for two of the format.
  std::array<char, 64 * kMaxTimeFormatBytes> written{};
  const size_t length =
      rewritten.empty() ? 0
                        : std::strftime(written.data(), written.size(), rewritten.c_str(), &parts);
  const bool trusted = format->trusted().size() == 1 && format->trusted()[0].length == text.size();
  return JinjaValue::Text(absl::string_view(written.data(), length), trusted);
}

absl::StatusOr<JinjaValue> RaiseException(JinjaContext& context, const JinjaValue& /*self*/,
                                          const JinjaArguments& arguments) {
  ASSIGN_OR_RETURN(const OriginText message, ToText(arguments[0], context.budget));
  return absl::InvalidArgumentError(message.text().substr(0, kMaxRaisedBytes));
}

const std::vector<JinjaBuiltin>& Functions() {
  static const std::vector<JinjaBuiltin> table = {
      {"dict", {"mapping", "*"}, 0, Dict},
      {"namespace", {"mapping", "*"}, 0, MakeNamespace},
      {"raise_exception", {"message"}, 1, RaiseException},
      {"range", {"start", "stop", "step"}, 1, Range},
  };
  return table;
}

}  // namespace

const JinjaBuiltin* FindJinjaFunction(absl::string_view name) {
  return FindBuiltin(Functions(), name);
}

const JinjaBuiltin* StrftimeNow() {
  static const JinjaBuiltin function = {"strftime_now", {"format"}, 1, TellTime};
  return &function;
}

}  // namespace nightshift
