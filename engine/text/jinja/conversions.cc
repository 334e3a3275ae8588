#include "engine/text/jinja/conversions.h"

#include <array>
#include <charconv>
#include <cmath>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>
#include <utf8proc.h>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

#include "engine/text/jinja/operations.h"
#include "kernels/base/status_macros.h"
#include "kernels/base/utf8.h"

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

std::string JsonEscape(char32_t character, bool ascii) {
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
      break;
  }
  auto code = static_cast<uint32_t>(character);
  if (code >= 0x20 && (!ascii || code < 0x7F)) return "";
  if (code < 0x10000) return absl::StrFormat("\\u%04x", code);
  code -= 0x10000;
  return absl::StrFormat("\\u%04x\\u%04x", 0xD800 + (code >> 10), 0xDC00 + (code & 0x3FF));
}

// Writes nested values. What it adds itself (brackets, escapes, numbers) is not trusted: it is
// neither the template's text nor needed to spell a special token.
class ValueWriter {
 public:
  explicit ValueWriter(JinjaBudget& budget) : budget_(budget) {}
  virtual ~ValueWriter() = default;

  virtual absl::Status Write(const JinjaValue& value) = 0;
  OriginText Take() { return std::move(output_); }

 protected:
  absl::Status Add(absl::string_view text) {
    output_.Append(text, /*trusted=*/false);
    return absl::OkStatus();
  }

  // `text` in quotes, with an escape where `escape` answers one.
  template <typename Escape>
  absl::Status AddQuoted(const OriginText& text, char quote, Escape escape) {
    RETURN_IF_ERROR(budget_.SpendBytes(text.size()));
    RETURN_IF_ERROR(Add(absl::string_view(&quote, 1)));
    size_t copied = 0;
    for (size_t offset = 0; offset < text.size();) {
      const Utf8Step step = NextCharacter(text.text(), offset);
      const std::string escaped = escape(step.character);
      if (!escaped.empty()) {
        output_.Append(text, copied, offset - copied);
        RETURN_IF_ERROR(Add(escaped));
        copied = offset + step.length;
      }
      offset += step.length;
    }
    output_.Append(text, copied, text.size() - copied);
    return Add(absl::string_view(&quote, 1));
  }

  JinjaBudget& budget_;
  OriginText output_;
};

// Python's repr.
class ReprWriter : public ValueWriter {
 public:
  using ValueWriter::ValueWriter;

  absl::Status Write(const JinjaValue& value) override {
    RETURN_IF_ERROR(budget_.SpendSteps(1));
    switch (value.kind()) {
      case Kind::kUndefined:
        return Add("Undefined");
      case Kind::kNone:
        return Add("None");
      case Kind::kBool:
        return Add(value.boolean() ? "True" : "False");
      case Kind::kInteger:
        return Add(absl::StrCat(value.integer()));
      case Kind::kFloat:
        return Add(FloatText(value.number()));
      case Kind::kText:
        return WriteText(value.text());
      case Kind::kList:
        return WriteList(value);
      case Kind::kMapping:
        return WriteMapping(value.mapping());
      default:
        return Add(absl::StrCat("<", value.TypeName(), ">"));
    }
  }

 private:
  absl::Status WriteText(const OriginText& text) {
    const bool double_quotes =
        text.text().find('\'') != std::string::npos && text.text().find('"') == std::string::npos;
    const char quote = double_quotes ? '"' : '\'';
    return AddQuoted(text, quote,
                     [quote](char32_t character) { return ReprEscape(character, quote); });
  }

  absl::Status WriteList(const JinjaValue& list) {
    const bool is_tuple = list.sequence() == SequenceKind::kTuple;
    switch (list.sequence()) {
      case SequenceKind::kRange: {
        const JinjaRange& range = list.range();
        return Add(absl::StrCat("range(", range.start, ", ", range.stop,
                                range.step == 1 ? "" : absl::StrCat(", ", range.step), ")"));
      }
      case SequenceKind::kList:
        RETURN_IF_ERROR(Add("["));
        break;
      case SequenceKind::kTuple:
        RETURN_IF_ERROR(Add("("));
        break;
      default:
        RETURN_IF_ERROR(Add(absl::StrCat(list.TypeName(), "([")));
    }
    for (size_t i = 0; i < list.items().size(); ++i) {
      if (i > 0) RETURN_IF_ERROR(Add(", "));
      RETURN_IF_ERROR(Write(list.items()[i]));
    }
    if (is_tuple) return Add(list.items().size() == 1 ? ",)" : ")");
    return Add(list.sequence() == SequenceKind::kList ? "]" : "])");
  }

  absl::Status WriteMapping(const JinjaMapping& mapping) {
    RETURN_IF_ERROR(Add("{"));
    bool is_first = true;
    for (const auto& [key, value] : mapping.entries) {
      if (!is_first) RETURN_IF_ERROR(Add(", "));
      is_first = false;
      RETURN_IF_ERROR(Write(key));
      RETURN_IF_ERROR(Add(": "));
      RETURN_IF_ERROR(Write(value));
    }
    return Add("}");
  }
};

class JsonWriter : public ValueWriter {
 public:
  JsonWriter(const JsonStyle& style, JinjaBudget& budget) : ValueWriter(budget), style_(style) {}

  absl::Status Write(const JinjaValue& value) override {
    RETURN_IF_ERROR(budget_.SpendSteps(1));
    if (value.Is(Kind::kText)) return WriteText(value.text());
    if (value.Is(Kind::kMapping)) return WriteMapping(value.mapping());
    if (value.IsSequence(SequenceKind::kList) || value.IsSequence(SequenceKind::kTuple)) {
      return WriteList(value.items());
    }
    ASSIGN_OR_RETURN(const std::string text, ScalarText(value));
    return Add(text);
  }

 private:
  static absl::StatusOr<std::string> ScalarText(const JinjaValue& value) {
    switch (value.kind()) {
      case Kind::kNone:
        return std::string("null");
      case Kind::kBool:
        return std::string(value.boolean() ? "true" : "false");
      case Kind::kInteger:
        return absl::StrCat(value.integer());
      case Kind::kFloat: {
        const double number = value.number();
        if (std::isnan(number)) return std::string("NaN");
        if (std::isinf(number)) return std::string(number < 0 ? "-Infinity" : "Infinity");
        return FloatText(number);
      }
      default:
        return absl::InvalidArgumentError(
            absl::StrCat(value.TypeName(), " cannot be written as JSON"));
    }
  }

  absl::Status WriteText(const OriginText& text) {
    const bool ascii = style_.ascii;
    return AddQuoted(text, '"',
                     [ascii](char32_t character) { return JsonEscape(character, ascii); });
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
    std::vector<JinjaValue> order(mapping.entries.size());
    std::vector<JinjaValue> keys;
    for (size_t i = 0; i < order.size(); ++i) {
      order[i] = JinjaValue::Integer(static_cast<int64_t>(i));
      keys.push_back(mapping.entries[i].first);
    }
    if (style_.sort_keys) {
      ASSIGN_OR_RETURN(order, SortBy(std::move(order), keys, /*descending=*/false, budget_));
    }
    RETURN_IF_ERROR(Open("{", order.empty()));
    for (size_t i = 0; i < order.size(); ++i) {
      if (i > 0) RETURN_IF_ERROR(Separate());
      const auto& [key, value] = mapping.entries[static_cast<size_t>(order[i].integer())];
      if (key.Is(Kind::kText)) {
        RETURN_IF_ERROR(WriteText(key.text()));
      } else {
        ASSIGN_OR_RETURN(const std::string text, ScalarText(key));
        RETURN_IF_ERROR(Add(absl::StrCat("\"", text, "\"")));
      }
      RETURN_IF_ERROR(Add(style_.key_separator));
      RETURN_IF_ERROR(Write(value));
    }
    return Close("}", order.empty());
  }

  absl::Status Open(absl::string_view bracket, bool empty) {
    RETURN_IF_ERROR(Add(bracket));
    ++level_;
    return empty ? absl::OkStatus() : NewLine();
  }

  absl::Status Separate() {
    RETURN_IF_ERROR(budget_.SpendBytes(style_.item_separator.size() + style_.key_separator.size()));
    RETURN_IF_ERROR(Add(style_.item_separator));
    return NewLine();
  }

  absl::Status Close(absl::string_view bracket, bool empty) {
    --level_;
    if (!empty) RETURN_IF_ERROR(NewLine());
    return Add(bracket);
  }

  absl::Status NewLine() {
    if (!style_.indent.has_value()) return absl::OkStatus();
    RETURN_IF_ERROR(budget_.SpendBytes(style_.indent->size() * level_));
    RETURN_IF_ERROR(Add("\n"));
    for (size_t i = 0; i < level_; ++i)
      RETURN_IF_ERROR(Add(*style_.indent));
    return absl::OkStatus();
  }

  const JsonStyle& style_;
  size_t level_ = 0;
};

absl::StatusOr<JinjaValue> NumberFromJson(const nlohmann::ordered_json& json,
                                          const std::string& path) {
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

absl::StatusOr<JinjaValue> FromJsonAt(const nlohmann::ordered_json& json, const std::string& path,
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
    for (const nlohmann::ordered_json& element : json) {
      ASSIGN_OR_RETURN(JinjaValue item,
                       FromJsonAt(element, absl::StrCat(path, "[", items.size(), "]"), depth + 1));
      items.push_back(std::move(item));
    }
    return JinjaValue::List(std::move(items));
  }
  if (json.is_object()) {
    std::vector<std::pair<JinjaValue, JinjaValue>> entries;
    entries.reserve(json.size());
    for (auto entry = json.begin(); entry != json.end(); ++entry) {
      ASSIGN_OR_RETURN(OriginText key, TextFromJson(entry.key(), absl::StrCat("a name in ", path)));
      ASSIGN_OR_RETURN(JinjaValue value,
                       FromJsonAt(entry.value(), absl::StrCat(path, ".", entry.key()), depth + 1));
      entries.emplace_back(JinjaValue::Text(std::move(key)), std::move(value));
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
  return ToRepr(value, budget);
}

absl::StatusOr<OriginText> ToRepr(const JinjaValue& value, JinjaBudget& budget) {
  ReprWriter writer(budget);
  RETURN_IF_ERROR(writer.Write(value));
  return writer.Take();
}

absl::StatusOr<OriginText> ToJson(const JinjaValue& value, const JsonStyle& style,
                                  JinjaBudget& budget) {
  JsonWriter writer(style, budget);
  RETURN_IF_ERROR(writer.Write(value));
  return writer.Take();
}

absl::StatusOr<JinjaValue> FromJson(const nlohmann::ordered_json& json, const std::string& path) {
  return FromJsonAt(json, path, 1);
}

}  // namespace nightshift
