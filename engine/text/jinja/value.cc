#include "engine/text/jinja/value.h"

#include <algorithm>
#include <cmath>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

#include "kernels/base/status_macros.h"

namespace nightshift {
namespace {

absl::Status CheckDepth(int depth) {
  if (depth <= kMaxValueDepth) return absl::OkStatus();
  return absl::ResourceExhaustedError(
      absl::StrCat("lists and mappings nested more than ", kMaxValueDepth, " deep"));
}

int DepthOf(const std::vector<JinjaValue>& items) {
  int depth = 0;
  for (const JinjaValue& item : items)
    depth = std::max(depth, item.depth());
  return depth;
}

std::string TextKey(absl::string_view text) {
  return absl::StrCat("t", text);
}

// Equal keys, and only they, have one code: 1, 1.0 and true are equal in Python.
absl::StatusOr<std::string> MappingKey(const JinjaValue& key) {
  using Kind = JinjaValue::Kind;
  if (key.Is(Kind::kText)) return TextKey(key.text().text());
  if (key.IsWhole()) return absl::StrCat("n", key.integer());
  if (key.Is(Kind::kFloat)) {
    constexpr double kLimit = 9223372036854775808.0;  // 2^63
    const double number = key.number();
    const bool whole = std::floor(number) == number && number >= -kLimit && number < kLimit;
    return whole ? absl::StrCat("n", static_cast<int64_t>(number)) : absl::StrFormat("f%a", number);
  }
  if (key.Is(Kind::kNone)) return std::string("0");
  if (key.Is(Kind::kUndefined)) return std::string("u");
  // Tuples of tuples could share their parts, and spell a code of any length.
  if (key.IsSequence(SequenceKind::kTuple) && key.depth() == 1) {
    std::string code = "(";
    for (const JinjaValue& item : key.items()) {
      ASSIGN_OR_RETURN(const std::string part, MappingKey(item));
      absl::StrAppend(&code, part.size(), ":", part);
    }
    return code;
  }
  return absl::InvalidArgumentError(
      absl::StrCat("a ", key.TypeName(), " cannot be the key of a mapping"));
}

}  // namespace

JinjaValue JinjaValue::Undefined(std::string what) {
  return JinjaValue(Data(UndefinedData{std::move(what)}));
}

JinjaValue JinjaValue::None() {
  return JinjaValue(Data(std::monostate{}));
}

JinjaValue JinjaValue::Bool(bool value) {
  return JinjaValue(Data(value));
}

JinjaValue JinjaValue::Integer(int64_t value) {
  return JinjaValue(Data(value));
}

JinjaValue JinjaValue::Float(double value) {
  return JinjaValue(Data(value));
}

JinjaValue JinjaValue::Text(OriginText text) {
  return JinjaValue(Data(std::make_shared<const OriginText>(std::move(text))));
}

JinjaValue JinjaValue::Text(absl::string_view text, bool trusted) {
  return Text(OriginText(text, trusted));
}

absl::StatusOr<JinjaValue> JinjaValue::List(std::vector<JinjaValue> items, SequenceKind sequence,
                                            JinjaRange range) {
  const int depth = DepthOf(items) + 1;
  RETURN_IF_ERROR(CheckDepth(depth));
  return JinjaValue(Data(std::make_shared<const JinjaList>(
      JinjaList{.items = std::move(items), .depth = depth, .sequence = sequence, .range = range})));
}

absl::StatusOr<JinjaValue> JinjaValue::Iterator(std::vector<JinjaValue> items, absl::Status end) {
  const int depth = DepthOf(items) + 1;
  RETURN_IF_ERROR(CheckDepth(depth));
  return JinjaValue(Data(std::make_shared<JinjaIterator>(
      JinjaIterator{.items = std::move(items), .end = std::move(end), .next = 0, .depth = depth})));
}

absl::StatusOr<JinjaValue> JinjaValue::Mapping(
    std::vector<std::pair<JinjaValue, JinjaValue>> entries) {
  auto mapping = std::make_shared<JinjaMapping>();
  for (auto& [key, value] : entries) {
    mapping->depth = std::max(mapping->depth, value.depth() + 1);
    ASSIGN_OR_RETURN(std::string code, MappingKey(key));
    const auto [place, is_new] = mapping->index.emplace(std::move(code), mapping->entries.size());
    if (is_new) {
      mapping->entries.emplace_back(std::move(key), std::move(value));
    } else {
      mapping->entries[place->second].second = std::move(value);
    }
  }
  RETURN_IF_ERROR(CheckDepth(mapping->depth));
  return JinjaValue(Data(std::shared_ptr<const JinjaMapping>(std::move(mapping))));
}

JinjaValue JinjaValue::Namespace(JinjaNamespace* space) {
  return JinjaValue(Data(space));
}

JinjaValue JinjaValue::Loop(std::shared_ptr<JinjaLoop> loop) {
  return JinjaValue(Data(std::move(loop)));
}

JinjaValue JinjaValue::Callable(const JinjaBuiltin* builtin) {
  return JinjaValue(Data(JinjaCallable{.builtin = builtin, .self = nullptr, .macro = nullptr}));
}

JinjaValue JinjaValue::Method(const JinjaBuiltin* builtin, JinjaValue self) {
  return JinjaValue(Data(JinjaCallable{.builtin = builtin,
                                       .self = std::make_shared<const JinjaValue>(std::move(self)),
                                       .macro = nullptr}));
}

JinjaValue JinjaValue::Macro(const JinjaMacro* macro) {
  return JinjaValue(Data(JinjaCallable{.builtin = nullptr, .self = nullptr, .macro = macro}));
}

const std::vector<JinjaValue>& JinjaValue::items() const {
  return std::get<std::shared_ptr<const JinjaList>>(data_)->items;
}

SequenceKind JinjaValue::sequence() const {
  return std::get<std::shared_ptr<const JinjaList>>(data_)->sequence;
}

const JinjaRange& JinjaValue::range() const {
  return std::get<std::shared_ptr<const JinjaList>>(data_)->range;
}

const JinjaMapping& JinjaValue::mapping() const {
  return *std::get<std::shared_ptr<const JinjaMapping>>(data_);
}

int64_t JinjaValue::integer() const {
  return Is(Kind::kBool) ? int64_t{boolean()} : std::get<int64_t>(data_);
}

double JinjaValue::number() const {
  return Is(Kind::kFloat) ? std::get<double>(data_) : static_cast<double>(integer());
}

bool JinjaValue::IsTrue() const {
  switch (kind()) {
    case Kind::kUndefined:
    case Kind::kNone:
      return false;
    case Kind::kBool:
      return boolean();
    case Kind::kInteger:
      return integer() != 0;
    case Kind::kFloat:
      return number() != 0;
    case Kind::kText:
      return !text().empty();
    case Kind::kList:
      return !items().empty();
    case Kind::kMapping:
      return !mapping().entries.empty();
    case Kind::kIterator:
    case Kind::kNamespace:
    case Kind::kLoop:
    case Kind::kCallable:
      return true;
  }
  return true;
}

const char* JinjaValue::TypeName() const {
  switch (kind()) {
    case Kind::kUndefined:
      return "undefined";
    case Kind::kNone:
      return "None";
    case Kind::kBool:
      return "bool";
    case Kind::kInteger:
      return "int";
    case Kind::kFloat:
      return "float";
    case Kind::kText:
      return "str";
    case Kind::kList: {
      static constexpr const char* kNames[] = {"list",      "tuple",       "range",
                                               "dict_keys", "dict_values", "dict_items"};
      return kNames[static_cast<size_t>(sequence())];
    }
    case Kind::kIterator:
      return "generator";
    case Kind::kMapping:
      return "dict";
    case Kind::kNamespace:
      return "namespace";
    case Kind::kLoop:
      return "loop";
    case Kind::kCallable:
      return "function";
  }
  return "value";
}

int JinjaValue::depth() const {
  switch (kind()) {
    case Kind::kList:
      return std::get<std::shared_ptr<const JinjaList>>(data_)->depth;
    case Kind::kIterator:
      return iterator().depth;
    case Kind::kMapping:
      return mapping().depth;
    case Kind::kLoop:
      return loop().items->depth() + 1;
    case Kind::kCallable:
      return callable().self == nullptr ? 0 : callable().self->depth() + 1;
    default:
      return 0;
  }
}

const JinjaValue* JinjaMapping::Find(absl::string_view key) const {
  const auto place = index.find(TextKey(key));
  return place == index.end() ? nullptr : &entries[place->second].second;
}

absl::StatusOr<const JinjaValue*> JinjaMapping::Find(const JinjaValue& key) const {
  // Python could look for a range; no mapping here has one.
  if (key.IsSequence(SequenceKind::kRange)) return nullptr;
  ASSIGN_OR_RETURN(const std::string code, MappingKey(key));
  const auto place = index.find(code);
  return place == index.end() ? nullptr : &entries[place->second].second;
}

}  // namespace nightshift
