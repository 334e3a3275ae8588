#include "engine/text/jinja/conversions.h"

#include <array>
#include <charconv>
#include <cmath>
#include <utility>
#include <vector>

#include <utf8proc.h>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

#include "engine/text/utf8.h"
#include "kernels/base/status_macros.h"

namespace nightshift {
namespace {

using Kind = JinjaValue::Kind;

// Python's repr of a float: the shortest digits that read back the same, with an exponent below
// 1e-4 and from 1e16 on.
std::string FloatText(double value) {
  if (std::isnan(value)) return "nan";
  if (std::isinf(value)) return value < 0 ? "-inf" : "inf";
  std::array<char, 64> buffer{};
  const auto fixed_below = 1e16;
  const double magnitude = std::fabs(value);
  const bool fixed = magnitude == 0 || (magnitude >= 1e-4 && magnitude < fixed_below);
  const auto end = std::to_chars(buffer.data(), buffer.data() + buffer.size(), value,
                                 fixed ? std::chars_format::fixed : std::chars_format::scientific);
  std::string text(buffer.data(), end.ptr);
  if (fixed && text.find('.') == std::string::npos) text += ".0";
  return text;
}

// Whether Python's repr shows the character as it is.
bool IsPrintable(char32_t character) {
  switch (utf8proc_category(static_cast<int32_t>(character))) {
    case UTF8PROC_CATEGORY_CC:
    case UTF8PROC_CATEGORY_CF:
    case UTF8PROC_CATEGORY_CN:
    case UTF8PROC_CATEGORY_CO:
    case UTF8PROC_CATEGORY_CS:
    case UTF8PROC_CATEGORY_ZL:
    case UTF8PROC_CATEGORY_ZP:
      return false;
    case UTF8PROC_CATEGORY_ZS:
      return character == ' ';
    default:
      return true;
  }
}

std::string ReprEscape(char32_t character, char quote) {
  if (character == '\n') return "\\n";
  if (character == '\r') return "\\r";
  if (character == '\t') return "\\t";
  if (character == '\\' || character == static_cast<char32_t>(quote)) {
    return {'\\', static_cast<char>(character)};
  }
  if (IsPrintable(character)) return "";
  const auto code = static_cast<uint32_t>(character);
  if (code < 0x100) return absl::StrFormat("\\x%02x", code);
  if (code < 0x10000) return absl::StrFormat("\\u%04x", code);
  return absl::StrFormat("\\U%08x", code);
}

std::string JsonEscape(char32_t character, char /*quote*/) {
  switch (character) {
    case '"':
      return "\\\"";
    case '\\':
      return "\\\\";
    case '\n':
      return "\\n";
    case '\r':
      return "\\r";
    case '\t':
      return "\\t";
    case '\b':
      return "\\b";
    case '\f':
      return "\\f";
    default:
      return character < 0x20 ? absl::StrFormat("\\u%04x", static_cast<uint32_t>(character)) : "";
  }
}

// Writes nested values. What it adds itself (brackets, escapes, numbers) is not trusted: it is
// neither the template's text nor needed to spell a special token.
class ValueWriter {
 public:
  enum class Style : uint8_t { kRepr, kJson };

  ValueWriter(Style style, std::optional<int64_t> indent, JinjaBudget& budget)
      : style_(style), indent_(indent), budget_(budget) {}

  absl::Status Write(const JinjaValue& value) {
    RETURN_IF_ERROR(budget_.SpendSteps(1));
    switch (value.kind()) {
      case Kind::kNone:
        Add(IsJson() ? "null" : "None");
        return absl::OkStatus();
      case Kind::kBool:
        Add(IsJson() ? (value.boolean() ? "true" : "false") : (value.boolean() ? "True" : "False"));
        return absl::OkStatus();
      case Kind::kInteger:
        Add(absl::StrCat(value.integer()));
        return absl::OkStatus();
      case Kind::kFloat:
        Add(IsJson() ? JsonFloat(value.number()) : FloatText(value.number()));
        return absl::OkStatus();
      case Kind::kText:
        return WriteText(value.text());
      case Kind::kList:
        return WriteList(value.items());
      case Kind::kMapping:
        return WriteMapping(value.mapping());
      default:
        if (!IsJson()) {
          Add(absl::StrCat("<", value.TypeName(), ">"));
          return absl::OkStatus();
        }
        return absl::InvalidArgumentError(
            absl::StrCat(value.TypeName(), " cannot be written as JSON"));
    }
  }

  OriginText Take() { return std::move(output_); }

 private:
  bool IsJson() const { return style_ == Style::kJson; }
  void Add(absl::string_view text) { output_.Append(text, /*trusted=*/false); }

  static std::string JsonFloat(double value) {
    if (std::isnan(value)) return "NaN";
    if (std::isinf(value)) return value < 0 ? "-Infinity" : "Infinity";
    return FloatText(value);
  }

  absl::Status WriteText(const OriginText& text) {
    RETURN_IF_ERROR(budget_.SpendBytes(text.size()));
    const bool double_quotes = IsJson() || (text.text().find('\'') != std::string::npos &&
                                            text.text().find('"') == std::string::npos);
    const char quote = double_quotes ? '"' : '\'';
    Add(absl::string_view(&quote, 1));
    size_t copied = 0;
    for (size_t offset = 0; offset < text.size();) {
      const Utf8Step step = NextCharacter(text.text(), offset);
      const std::string escape =
          IsJson() ? JsonEscape(step.character, quote) : ReprEscape(step.character, quote);
      if (!escape.empty()) {
        output_.Append(text, copied, offset - copied);
        Add(escape);
        copied = offset + step.length;
      }
      offset += step.length;
    }
    output_.Append(text, copied, text.size() - copied);
    Add(absl::string_view(&quote, 1));
    return absl::OkStatus();
  }

  absl::Status WriteList(const std::vector<JinjaValue>& items) {
    RETURN_IF_ERROR(Open("[", items.empty()));
    for (size_t i = 0; i < items.size(); ++i) {
      if (i > 0) RETURN_IF_ERROR(Separate());
      RETURN_IF_ERROR(Write(items[i]));
    }
    return Close("]", items.empty());
  }

  absl::Status WriteMapping(const JinjaMapping& mapping) {
    RETURN_IF_ERROR(Open("{", mapping.entries.empty()));
    bool is_first = true;
    for (const auto& [key, value] : mapping.entries) {
      if (!is_first) RETURN_IF_ERROR(Separate());
      is_first = false;
      RETURN_IF_ERROR(WriteText(key));
      Add(": ");
      RETURN_IF_ERROR(Write(value));
    }
    return Close("}", mapping.entries.empty());
  }

  absl::Status Open(absl::string_view bracket, bool empty) {
    Add(bracket);
    ++level_;
    return empty ? absl::OkStatus() : NewLine();
  }

  absl::Status Separate() {
    Add(indent_.has_value() ? "," : ", ");
    return NewLine();
  }

  absl::Status Close(absl::string_view bracket, bool empty) {
    --level_;
    if (!empty) RETURN_IF_ERROR(NewLine());
    Add(bracket);
    return absl::OkStatus();
  }

  absl::Status NewLine() {
    if (!indent_.has_value()) return absl::OkStatus();
    const auto spaces = static_cast<size_t>(*indent_) * level_;
    RETURN_IF_ERROR(budget_.SpendBytes(spaces));
    Add("\n");
    Add(std::string(spaces, ' '));
    return absl::OkStatus();
  }

  Style style_;
  std::optional<int64_t> indent_;
  JinjaBudget& budget_;
  size_t level_ = 0;
  OriginText output_;
};

absl::StatusOr<JinjaValue> NumberFromJson(const nlohmann::json& json, const std::string& path) {
  if (json.is_number_float()) return JinjaValue::Float(json.get<double>());
  if (json.is_number_unsigned() && json.get<uint64_t>() > uint64_t{INT64_MAX}) {
    return absl::InvalidArgumentError(absl::StrCat(path, ": whole number beyond 64 bits"));
  }
  return JinjaValue::Integer(json.get<int64_t>());
}

absl::StatusOr<OriginText> TextFromJson(const std::string& text, const std::string& path) {
  const size_t invalid = FindInvalidUtf8(text);
  if (invalid != absl::string_view::npos) {
    return absl::InvalidArgumentError(absl::StrCat(path, " is not valid UTF-8 at byte ", invalid));
  }
  return OriginText(text, /*trusted=*/false);
}

absl::StatusOr<JinjaValue> FromJsonAt(const nlohmann::json& json, const std::string& path,
                                      int depth) {
  if (depth > kMaxValueDepth) {
    return absl::ResourceExhaustedError(
        absl::StrCat(path, ": nested more than ", kMaxValueDepth, " deep"));
  }
  if (json.is_boolean()) return JinjaValue::Bool(json.get<bool>());
  if (json.is_number()) return NumberFromJson(json, path);
  if (json.is_string()) {
    ASSIGN_OR_RETURN(OriginText text, TextFromJson(json.get_ref<const std::string&>(), path));
    return JinjaValue::Text(std::move(text));
  }
  if (json.is_array()) {
    std::vector<JinjaValue> items;
    items.reserve(json.size());
    for (const nlohmann::json& element : json) {
      ASSIGN_OR_RETURN(JinjaValue item,
                       FromJsonAt(element, absl::StrCat(path, "[", items.size(), "]"), depth + 1));
      items.push_back(std::move(item));
    }
    return JinjaValue::List(std::move(items));
  }
  if (json.is_object()) {
    std::vector<std::pair<OriginText, JinjaValue>> entries;
    entries.reserve(json.size());
    for (auto entry = json.begin(); entry != json.end(); ++entry) {
      ASSIGN_OR_RETURN(OriginText key, TextFromJson(entry.key(), absl::StrCat("a name in ", path)));
      ASSIGN_OR_RETURN(JinjaValue value,
                       FromJsonAt(entry.value(), absl::StrCat(path, ".", entry.key()), depth + 1));
      entries.emplace_back(std::move(key), std::move(value));
    }
    return JinjaValue::Mapping(std::move(entries));
  }
  return JinjaValue::None();
}

}  // namespace

absl::StatusOr<OriginText> ToText(const JinjaValue& value, JinjaBudget& budget) {
  if (value.Is(Kind::kUndefined)) return OriginText();
  if (value.Is(Kind::kText)) {
    RETURN_IF_ERROR(budget.SpendBytes(value.text().size()));
    return value.text();
  }
  ValueWriter writer(ValueWriter::Style::kRepr, std::nullopt, budget);
  RETURN_IF_ERROR(writer.Write(value));
  return writer.Take();
}

absl::StatusOr<OriginText> ToJson(const JinjaValue& value, std::optional<int64_t> indent,
                                  JinjaBudget& budget) {
  if (indent.has_value() && (*indent < 0 || *indent > 64)) {
    return absl::InvalidArgumentError(absl::StrCat("indent ", *indent, ", want 0 to 64"));
  }
  ValueWriter writer(ValueWriter::Style::kJson, indent, budget);
  RETURN_IF_ERROR(writer.Write(value));
  return writer.Take();
}

absl::StatusOr<JinjaValue> FromJson(const nlohmann::json& json, const std::string& path) {
  return FromJsonAt(json, path, 1);
}

}  // namespace nightshift
