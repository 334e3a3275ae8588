// Filters of chat templates over lists, mappings and what else has elements. Those that are lazy in
// Jinja give iterators: always true, walked once, without length.
#include <algorithm>
#include <optional>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"

#include "engine/text/jinja/access.h"
#include "engine/text/jinja/builtins.h"
#include "engine/text/jinja/conversions.h"
#include "engine/text/jinja/operations.h"
#include "engine/text/jinja/text_operations.h"
#include "kernels/base/status_macros.h"

namespace nightshift {
namespace {

using Kind = JinjaValue::Kind;
using Result = absl::StatusOr<JinjaValue>;

Result LengthOf(JinjaContext& context, const JinjaValue& self,
                const JinjaArguments& /*arguments*/) {
  ASSIGN_OR_RETURN(const int64_t length, Length(self, context.budget));
  return JinjaValue::Integer(length);
}

Result First(JinjaContext& context, const JinjaValue& self, const JinjaArguments& /*arguments*/) {
  if (self.Is(Kind::kIterator)) {
    JinjaIterator& iterator = self.iterator();
    if (iterator.next < iterator.items.size()) return iterator.items[iterator.next++];
  }
  ASSIGN_OR_RETURN(const std::vector<JinjaValue> elements, Elements(self, context.budget));
  if (elements.empty()) return JinjaValue::Undefined("first of nothing");
  return elements.front();
}

Result Last(JinjaContext& context, const JinjaValue& self, const JinjaArguments& /*arguments*/) {
  if (self.Is(Kind::kIterator)) {
    return absl::InvalidArgumentError("a generator has no last element; make a list of it first");
  }
  ASSIGN_OR_RETURN(const std::vector<JinjaValue> elements, Elements(self, context.budget));
  if (elements.empty()) return JinjaValue::Undefined("last of nothing");
  return elements.back();
}

Result Join(JinjaContext& context, const JinjaValue& self, const JinjaArguments& arguments) {
  ASSIGN_OR_RETURN(const std::vector<JinjaValue> elements, Elements(self, context.budget));
  ASSIGN_OR_RETURN(const OriginText separator, ToText(arguments[0], context.budget));
  OriginText joined;
  for (size_t i = 0; i < elements.size(); ++i) {
    JinjaValue element = elements[i];
    if (arguments.Has(1)) {
      ASSIGN_OR_RETURN(element, GetPath(element, arguments[1], {}, context.budget));
    }
    ASSIGN_OR_RETURN(const OriginText text, ToText(element, context.budget));
    RETURN_IF_ERROR(context.budget.SpendBytes(separator.size()));
    if (i > 0) joined.Append(separator);
    joined.Append(text);
  }
  return JinjaValue::Text(std::move(joined));
}

Result ToList(JinjaContext& context, const JinjaValue& self, const JinjaArguments& /*arguments*/) {
  ASSIGN_OR_RETURN(std::vector<JinjaValue> elements, Elements(self, context.budget));
  return JinjaValue::List(std::move(elements));
}

Result Reverse(JinjaContext& context, const JinjaValue& self, const JinjaArguments& /*arguments*/) {
  if (self.Is(Kind::kText)) {
    return Slice(self, {.start = std::nullopt, .stop = std::nullopt, .step = -1}, context.budget);
  }
  ASSIGN_OR_RETURN(std::vector<JinjaValue> elements, Elements(self, context.budget));
  std::reverse(elements.begin(), elements.end());
  // Python cannot walk a generator backwards, so Jinja makes a list of it.
  if (self.Is(Kind::kIterator)) return JinjaValue::List(std::move(elements));
  return JinjaValue::Iterator(std::move(elements), absl::OkStatus());
}

Result ItemsOf(JinjaContext& context, const JinjaValue& self, const JinjaArguments& arguments) {
  if (self.Is(Kind::kUndefined)) return JinjaValue::Iterator({}, absl::OkStatus());
  if (!self.Is(Kind::kMapping)) {
    return JinjaValue::Iterator({}, absl::InvalidArgumentError(absl::StrCat(
                                        "items: a mapping wanted, found ", self.TypeName())));
  }
  ASSIGN_OR_RETURN(const JinjaValue items,
                   FindJinjaMethod(self, "items")->run(context, self, arguments));
  return JinjaValue::Iterator(items.items(), absl::OkStatus());
}

// The arguments behind the first `count`.
JinjaCall Behind(const JinjaCall& call, size_t count) {
  JinjaCall rest = call;
  const size_t dropped = std::min(count, rest.positional.size());
  rest.positional.erase(rest.positional.begin(),
                        rest.positional.begin() + static_cast<std::ptrdiff_t>(dropped));
  return rest;
}

absl::StatusOr<const JinjaBuiltin*> NamedBuiltin(const JinjaValue& name, const char* what,
                                                 const JinjaBuiltin* (*find)(absl::string_view)) {
  if (!name.Is(Kind::kText)) {
    return absl::InvalidArgumentError(
        absl::StrCat("the name of a ", what, " wanted, found ", name.TypeName()));
  }
  const JinjaBuiltin* builtin = find(name.text().text());
  if (builtin == nullptr) {
    return absl::InvalidArgumentError(
        absl::StrCat(what, " ", name.text().text(), " is not supported"));
  }
  return builtin;
}

// Elements until one fails; the iterator fails there, or at once where the call is `refused`. What
// is false has no elements, and no problems.
template <typename OfElement>
Result Lazily(JinjaContext& context, const JinjaValue& self, const absl::Status& refused,
              OfElement of_element) {
  std::vector<JinjaValue> results;
  if (!self.IsTrue()) return JinjaValue::Iterator({}, absl::OkStatus());
  if (!refused.ok()) return JinjaValue::Iterator({}, refused);
  const absl::StatusOr<std::vector<JinjaValue>> elements = Elements(self, context.budget);
  absl::Status end = elements.status();
  for (size_t i = 0; end.ok() && i < elements->size(); ++i) {
    end = context.budget.SpendSteps(1);
    if (end.ok()) end = of_element((*elements)[i], results);
  }
  if (absl::IsResourceExhausted(end)) return end;
  return JinjaValue::Iterator(std::move(results), std::move(end));
}

Result Map(JinjaContext& context, const JinjaValue& self, const JinjaArguments& arguments) {
  const JinjaCall& call = arguments.rest;
  JinjaValue attribute;
  JinjaValue absent;
  const JinjaBuiltin* filter = nullptr;
  absl::Status refused;
  if (call.positional.empty()) {
    for (const auto& [name, value] : call.keywords) {
      if (name == "attribute") {
        attribute = value;
      } else if (name == "default") {
        if (!value.Is(Kind::kNone)) absent = value;
      } else {
        refused = absl::InvalidArgumentError(absl::StrCat("map: argument ", name, " is not known"));
      }
    }
    if (attribute.Is(Kind::kUndefined)) {
      refused = absl::InvalidArgumentError("map: a filter or attribute= wanted");
    }
  } else {
    const auto found = NamedBuiltin(call.positional[0], "filter", FindJinjaFilter);
    refused = found.status();
    if (found.ok()) filter = *found;
  }
  const JinjaCall rest = Behind(call, 1);
  const auto of_element = [&](const JinjaValue& element,
                              std::vector<JinjaValue>& results) -> absl::Status {
    ASSIGN_OR_RETURN(JinjaValue result, filter != nullptr
                                            ? RunJinjaBuiltin(*filter, context, element, rest)
                                            : GetPath(element, attribute, absent, context.budget));
    results.push_back(std::move(result));
    return absl::OkStatus();
  };
  return Lazily(context, self, refused, of_element);
}

// select, reject, selectattr, rejectattr: elements for which a test of them, or of an attribute of
// theirs, is `wanted`. Without a test, Python's truth decides.
template <bool of_attribute, bool wanted>
Result Select(JinjaContext& context, const JinjaValue& self, const JinjaArguments& arguments) {
  const JinjaCall& call = arguments.rest;
  constexpr size_t kTest = of_attribute ? 1 : 0;
  const JinjaBuiltin* test = nullptr;
  absl::Status refused;
  if (of_attribute && call.positional.empty()) {
    refused = absl::InvalidArgumentError("the name of an attribute wanted");
  } else if (call.positional.size() > kTest) {
    const auto found = NamedBuiltin(call.positional[kTest], "test", FindJinjaTest);
    refused = found.status();
    if (found.ok()) test = *found;
  }
  const JinjaCall rest = Behind(call, kTest + 1);
  const auto of_element = [&](const JinjaValue& element,
                              std::vector<JinjaValue>& results) -> absl::Status {
    JinjaValue tested = element;
    if constexpr (of_attribute) {
      ASSIGN_OR_RETURN(tested, GetPath(element, call.positional[0], {}, context.budget));
    }
    bool holds = tested.IsTrue();
    if (test != nullptr) {
      ASSIGN_OR_RETURN(const JinjaValue answer, RunJinjaBuiltin(*test, context, tested, rest));
      holds = answer.IsTrue();
    }
    if (holds == wanted) results.push_back(element);
    return absl::OkStatus();
  };
  return Lazily(context, self, refused, of_element);
}

// What an element is compared by: itself or an attribute, text without its case unless asked.
Result KeyOf(const JinjaValue& element, const JinjaValue& attribute, bool case_sensitive,
             JinjaContext& context) {
  JinjaValue key = element;
  if (!attribute.Is(Kind::kUndefined) && !attribute.Is(Kind::kNone)) {
    ASSIGN_OR_RETURN(key, GetPath(element, attribute, {}, context.budget));
  }
  if (case_sensitive || !key.Is(Kind::kText)) return key;
  RETURN_IF_ERROR(context.budget.SpendBytes(key.text().size()));
  return JinjaValue::Text(ChangeCase(key.text(), LetterCase::kLower));
}

// The list of keys of sort(attribute="a,b"). One key is a list too: equal ones, also undefined
// ones, are then not compared any further.
Result SortKeyOf(const JinjaValue& element, const JinjaValue& attribute, bool case_sensitive,
                 JinjaContext& context) {
  std::vector<JinjaValue> parts = {attribute};
  if (attribute.Is(Kind::kText)) {
    parts.clear();
    for (const absl::string_view part : absl::StrSplit(attribute.text().text(), ','))
      parts.push_back(JinjaValue::Text(part, /*trusted=*/false));
  }
  std::vector<JinjaValue> keys;
  for (const JinjaValue& part : parts) {
    ASSIGN_OR_RETURN(JinjaValue key, KeyOf(element, part, case_sensitive, context));
    keys.push_back(std::move(key));
  }
  return JinjaValue::List(std::move(keys));
}

Result Sort(JinjaContext& context, const JinjaValue& self, const JinjaArguments& arguments) {
  ASSIGN_OR_RETURN(std::vector<JinjaValue> elements, Elements(self, context.budget));
  ASSIGN_OR_RETURN(const bool descending, arguments.Bool(0, false));
  ASSIGN_OR_RETURN(const bool case_sensitive, arguments.Bool(1, false));
  std::vector<JinjaValue> keys;
  for (const JinjaValue& element : elements) {
    ASSIGN_OR_RETURN(JinjaValue key, SortKeyOf(element, arguments[2], case_sensitive, context));
    keys.push_back(std::move(key));
  }
  ASSIGN_OR_RETURN(elements, SortBy(std::move(elements), keys, descending, context.budget));
  return JinjaValue::List(std::move(elements));
}

// The pairs of a mapping, in the order of their keys or values.
Result DictSort(JinjaContext& context, const JinjaValue& self, const JinjaArguments& arguments) {
  if (!self.Is(Kind::kMapping)) {
    return absl::InvalidArgumentError(absl::StrCat("a mapping wanted, found ", self.TypeName()));
  }
  ASSIGN_OR_RETURN(const bool case_sensitive, arguments.Bool(0, false));
  ASSIGN_OR_RETURN(const OriginText* by, arguments.Text(1));
  ASSIGN_OR_RETURN(const bool descending, arguments.Bool(2, false));
  if (by != nullptr && by->text() != "key" && by->text() != "value") {
    return absl::InvalidArgumentError("by must be key or value");
  }
  const JinjaValue place = JinjaValue::Integer(by != nullptr && by->text() == "value" ? 1 : 0);
  ASSIGN_OR_RETURN(const JinjaValue pairs, FindJinjaMethod(self, "items")->run(context, self, {}));
  std::vector<JinjaValue> keys;
  for (const JinjaValue& pair : pairs.items()) {
    ASSIGN_OR_RETURN(JinjaValue key, KeyOf(pair, place, case_sensitive, context));
    keys.push_back(std::move(key));
  }
  ASSIGN_OR_RETURN(std::vector<JinjaValue> sorted,
                   SortBy(pairs.items(), keys, descending, context.budget));
  return JinjaValue::List(std::move(sorted));
}

template <bool largest>
Result Extreme(JinjaContext& context, const JinjaValue& self, const JinjaArguments& arguments) {
  ASSIGN_OR_RETURN(const std::vector<JinjaValue> elements, Elements(self, context.budget));
  ASSIGN_OR_RETURN(const bool case_sensitive, arguments.Bool(0, false));
  if (elements.empty()) return JinjaValue::Undefined("the least or greatest of nothing");
  size_t best = 0;
  JinjaValue best_key;
  for (size_t i = 0; i < elements.size(); ++i) {
    ASSIGN_OR_RETURN(JinjaValue key, KeyOf(elements[i], arguments[1], case_sensitive, context));
    RETURN_IF_ERROR(context.budget.SpendSteps(1));
    int order = largest ? 1 : -1;
    if (i > 0) {
      ASSIGN_OR_RETURN(order, Compare(key, best_key, context.budget));
    }
    if (largest ? order > 0 : order < 0) {
      best = i;
      best_key = std::move(key);
    }
  }
  return elements[best];
}

Result Sum(JinjaContext& context, const JinjaValue& self, const JinjaArguments& arguments) {
  ASSIGN_OR_RETURN(const std::vector<JinjaValue> elements, Elements(self, context.budget));
  JinjaValue sum = arguments.given[1] ? arguments[1] : JinjaValue::Integer(0);
  if (sum.Is(Kind::kText)) return absl::InvalidArgumentError("text cannot be summed up; join it");
  for (const JinjaValue& element : elements) {
    JinjaValue term = element;
    if (arguments.Has(0)) {
      ASSIGN_OR_RETURN(term, GetPath(element, arguments[0], {}, context.budget));
    }
    RETURN_IF_ERROR(context.budget.SpendSteps(1));
    ASSIGN_OR_RETURN(sum, ApplyOperator(JinjaOperator::kAdd, sum, term, context.budget));
  }
  return sum;
}

// The first of each set of equal elements.
Result Unique(JinjaContext& context, const JinjaValue& self, const JinjaArguments& arguments) {
  ASSIGN_OR_RETURN(const bool case_sensitive, arguments.Bool(0, false));
  ASSIGN_OR_RETURN(const std::vector<JinjaValue> elements, Elements(self, context.budget));
  // From the last to the first: of equal keys a mapping keeps the value that came last.
  std::vector<std::pair<JinjaValue, JinjaValue>> places;
  for (size_t i = elements.size(); i-- > 0;) {
    ASSIGN_OR_RETURN(JinjaValue key, KeyOf(elements[i], arguments[1], case_sensitive, context));
    RETURN_IF_ERROR(context.budget.SpendSteps(1));
    places.emplace_back(std::move(key), JinjaValue::Integer(static_cast<int64_t>(i)));
  }
  ASSIGN_OR_RETURN(const JinjaValue first_places, JinjaValue::Mapping(std::move(places)));
  std::vector<size_t> kept;
  for (const auto& [key, place] : first_places.mapping().entries)
    kept.push_back(static_cast<size_t>(place.integer()));
  std::sort(kept.begin(), kept.end());
  std::vector<JinjaValue> distinct;
  for (const size_t place : kept)
    distinct.push_back(elements[place]);
  return JinjaValue::Iterator(std::move(distinct), absl::OkStatus());
}

// Rows of `linecount` elements, the last filled up.
Result Batch(JinjaContext& context, const JinjaValue& self, const JinjaArguments& arguments) {
  ASSIGN_OR_RETURN(const int64_t width, arguments.Integer(0, 0));
  ASSIGN_OR_RETURN(const std::vector<JinjaValue> elements, Elements(self, context.budget));
  std::vector<JinjaValue> rows;
  std::vector<JinjaValue> row;
  const auto finish = [&]() -> absl::Status {
    ASSIGN_OR_RETURN(JinjaValue list, JinjaValue::List(std::exchange(row, {})));
    rows.push_back(std::move(list));
    return absl::OkStatus();
  };
  for (const JinjaValue& element : elements) {
    if (static_cast<int64_t>(row.size()) == width) RETURN_IF_ERROR(finish());
    row.push_back(element);
  }
  if (!row.empty()) {
    while (arguments.Has(1) && static_cast<int64_t>(row.size()) < width) {
      RETURN_IF_ERROR(context.budget.SpendSteps(1));
      row.push_back(arguments[1]);
    }
    RETURN_IF_ERROR(finish());
  }
  return JinjaValue::Iterator(std::move(rows), absl::OkStatus());
}

// `slices` columns, the first ones an element longer where it does not come out even.
Result SliceInto(JinjaContext& context, const JinjaValue& self, const JinjaArguments& arguments) {
  ASSIGN_OR_RETURN(const int64_t slices, arguments.Integer(0, 0));
  ASSIGN_OR_RETURN(const std::vector<JinjaValue> elements, Elements(self, context.budget));
  if (slices <= 0) return absl::InvalidArgumentError("slices must be positive");
  const auto num_slices = static_cast<size_t>(slices);
  RETURN_IF_ERROR(context.budget.SpendSteps(num_slices));
  const size_t shorter = elements.size() / num_slices;
  const size_t longer = elements.size() % num_slices;
  std::vector<JinjaValue> columns;
  size_t next = 0;
  for (size_t i = 0; i < num_slices; ++i) {
    const size_t end = next + shorter + (i < longer ? 1 : 0);
    std::vector<JinjaValue> column(elements.begin() + static_cast<std::ptrdiff_t>(next),
                                   elements.begin() + static_cast<std::ptrdiff_t>(end));
    if (arguments.Has(1) && i >= longer) column.push_back(arguments[1]);
    next = end;
    ASSIGN_OR_RETURN(JinjaValue list, JinjaValue::List(std::move(column)));
    columns.push_back(std::move(list));
  }
  return JinjaValue::Iterator(std::move(columns), absl::OkStatus());
}

}  // namespace

const std::vector<JinjaBuiltin>& SequenceFilters() {
  static const std::vector<JinjaBuiltin> table = {
      {"batch", {"linecount", "fill_with"}, 1, Batch},
      {"count", {}, 0, LengthOf},
      {"dictsort", {"case_sensitive", "by", "reverse"}, 0, DictSort},
      {"first", {}, 0, First},
      {"items", {}, 0, ItemsOf},
      {"join", {"d", "attribute"}, 0, Join},
      {"last", {}, 0, Last},
      {"length", {}, 0, LengthOf},
      {"list", {}, 0, ToList},
      {"map", {"*"}, 0, Map},
      {"max", {"case_sensitive", "attribute"}, 0, Extreme<true>},
      {"min", {"case_sensitive", "attribute"}, 0, Extreme<false>},
      {"reject", {"*"}, 0, Select<false, false>},
      {"rejectattr", {"*"}, 0, Select<true, false>},
      {"reverse", {}, 0, Reverse},
      {"select", {"*"}, 0, Select<false, true>},
      {"selectattr", {"*"}, 0, Select<true, true>},
      {"slice", {"slices", "fill_with"}, 1, SliceInto},
      {"sort", {"reverse", "case_sensitive", "attribute"}, 0, Sort},
      {"sum", {"attribute", "start"}, 0, Sum},
      {"unique", {"case_sensitive", "attribute"}, 0, Unique},
  };
  return table;
}

}  // namespace nightshift
