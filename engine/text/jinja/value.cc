#include "engine/text/jinja/value.h"

#include <algorithm>

#include "absl/strings/str_cat.h"

#include "kernels/base/status_macros.h"

namespace nightshift {
namespace {

absl::Status CheckDepth(int depth) {
  if (depth <= kMaxValueDepth) return absl::OkStatus();
  return absl::ResourceExhaustedError(
      absl::StrCat("lists and mappings nested more than ", kMaxValueDepth, " deep"));
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

absl::StatusOr<JinjaValue> JinjaValue::List(std::vector<JinjaValue> items) {
  int depth = 0;
  for (const JinjaValue& item : items)
    depth = std::max(depth, item.depth());
  RETURN_IF_ERROR(CheckDepth(depth + 1));
  return JinjaValue(Data(
      std::make_shared<const JinjaList>(JinjaList{.items = std::move(items), .depth = depth + 1})));
}

absl::StatusOr<JinjaValue> JinjaValue::Mapping(
    std::vector<std::pair<OriginText, JinjaValue>> entries) {
  auto mapping = std::make_shared<JinjaMapping>();
  for (auto& [key, value] : entries) {
    mapping->depth = std::max(mapping->depth, value.depth() + 1);
    const auto [place, is_new] = mapping->index.emplace(key.text(), mapping->entries.size());
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
  return JinjaValue(Data(JinjaCallable{.builtin = builtin, .self = nullptr}));
}

JinjaValue JinjaValue::Method(const JinjaBuiltin* builtin, JinjaValue self) {
  return JinjaValue(Data(JinjaCallable{
      .builtin = builtin, .self = std::make_shared<const JinjaValue>(std::move(self))}));
}

const std::vector<JinjaValue>& JinjaValue::items() const {
  return std::get<std::shared_ptr<const JinjaList>>(data_)->items;
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
    case Kind::kList:
      return "list";
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

const JinjaValue* JinjaMapping::Find(const std::string& key) const {
  const auto place = index.find(key);
  return place == index.end() ? nullptr : &entries[place->second].second;
}

}  // namespace nightshift
