// JinjaValue: what an expression of a chat template evaluates to.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

#include "engine/text/jinja/origin_text.h"

namespace nightshift {

class JinjaValue;
struct JinjaBuiltin;
struct JinjaList;
struct JinjaLoop;
struct JinjaMapping;
struct JinjaNamespace;

// Lists and mappings inside each other; deeper ones are refused when they are made, so that whoever
// walks a value may recurse.
inline constexpr int kMaxValueDepth = 64;

// A function, or a method with the value it belongs to.
struct JinjaCallable {
  const JinjaBuiltin* builtin = nullptr;
  std::shared_ptr<const JinjaValue> self;  // shared: values are copied freely
};

// Immutable, but for namespaces; cheap to copy: text, lists and mappings are shared because
// variables, loops and arguments all hold the same one. Not thread-safe, as one rendering uses it.
class JinjaValue {
 public:
  enum class Kind : uint8_t {
    kUndefined,
    kNone,
    kBool,
    kInteger,
    kFloat,
    kText,
    kList,
    kMapping,
    kNamespace,
    kLoop,
    kCallable,
  };

  JinjaValue() = default;  // undefined
  // What was looked up in vain, for the message if it is used.
  static JinjaValue Undefined(std::string what);
  static JinjaValue None();
  static JinjaValue Bool(bool value);
  static JinjaValue Integer(int64_t value);
  static JinjaValue Float(double value);
  static JinjaValue Text(OriginText text);
  static JinjaValue Text(absl::string_view text, bool trusted);
  // Errors: RESOURCE_EXHAUSTED beyond kMaxValueDepth.
  static absl::StatusOr<JinjaValue> List(std::vector<JinjaValue> items);
  // A later entry replaces an earlier one of the same key. Errors: as List.
  static absl::StatusOr<JinjaValue> Mapping(std::vector<std::pair<OriginText, JinjaValue>> entries);
  // The evaluator owns the namespace.
  static JinjaValue Namespace(JinjaNamespace* space);
  static JinjaValue Loop(std::shared_ptr<JinjaLoop> loop);
  static JinjaValue Callable(const JinjaBuiltin* builtin);
  static JinjaValue Method(const JinjaBuiltin* builtin, JinjaValue self);

  Kind kind() const { return static_cast<Kind>(data_.index()); }
  bool Is(Kind kind) const { return this->kind() == kind; }
  bool IsNumber() const { return Is(Kind::kBool) || Is(Kind::kInteger) || Is(Kind::kFloat); }

  // Each asks for its own kind.
  const std::string& undefined_what() const { return std::get<UndefinedData>(data_).what; }
  bool boolean() const { return std::get<bool>(data_); }
  const OriginText& text() const { return *std::get<std::shared_ptr<const OriginText>>(data_); }
  const std::vector<JinjaValue>& items() const;
  const JinjaMapping& mapping() const;
  JinjaNamespace& name_space() const { return *std::get<JinjaNamespace*>(data_); }
  JinjaLoop& loop() const { return *std::get<std::shared_ptr<JinjaLoop>>(data_); }
  const JinjaCallable& callable() const { return std::get<JinjaCallable>(data_); }
  // A bool counts as 0 or 1 here, as in Python.
  int64_t integer() const;
  double number() const;

  // Python's truth: empty, zero, none and undefined are false.
  bool IsTrue() const;
  // Python's name of the type, for messages.
  const char* TypeName() const;
  // Lists and mappings inside this value.
  int depth() const;

 private:
  struct UndefinedData {
    std::string what;
  };
  using Data = std::variant<UndefinedData, std::monostate, bool, int64_t, double,
                            std::shared_ptr<const OriginText>, std::shared_ptr<const JinjaList>,
                            std::shared_ptr<const JinjaMapping>, JinjaNamespace*,
                            std::shared_ptr<JinjaLoop>, JinjaCallable>;

  explicit JinjaValue(Data data) : data_(std::move(data)) {}

  Data data_;
};

struct JinjaList {
  std::vector<JinjaValue> items;
  int depth = 1;
};

// Keys are text, in the order in which they came.
struct JinjaMapping {
  std::vector<std::pair<OriginText, JinjaValue>> entries;
  absl::flat_hash_map<std::string, size_t> index;
  int depth = 1;

  // nullptr if there is no such key.
  const JinjaValue* Find(const std::string& key) const;
};

// {% set ns = namespace() %}: the one thing that assignments in a loop can change.
struct JinjaNamespace {
  absl::flat_hash_map<std::string, JinjaValue> values;
};

// The variable `loop`.
struct JinjaLoop {
  std::shared_ptr<const JinjaValue> items;  // a list; shared with the loop that runs over it
  size_t index = 0;
};

}  // namespace nightshift
