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
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

#include "engine/text/jinja/origin_text.h"

namespace nightshift {

class JinjaValue;
struct JinjaBuiltin;
struct JinjaIterator;
struct JinjaList;
struct JinjaLoop;
struct JinjaMacro;
struct JinjaMapping;
struct JinjaNamespace;
struct JinjaScope;
struct JinjaStatement;

// Lists and mappings inside each other; deeper ones are refused when they are made, so that whoever
// walks a value may recurse.
inline constexpr int kMaxValueDepth = 64;

// A function, a method with the value it belongs to, or a macro of the template.
struct JinjaCallable {
  const JinjaBuiltin* builtin = nullptr;
  std::shared_ptr<const JinjaValue> self;  // shared: values are copied freely
  const JinjaMacro* macro = nullptr;       // the evaluator owns it
};

// Which of Python's sequences a list is: they print, compare and add up differently.
enum class SequenceKind : uint8_t { kList, kTuple, kRange, kKeys, kValues, kItems };

// Of a kRange.
struct JinjaRange {
  int64_t start = 0;
  int64_t stop = 0;
  int64_t step = 1;
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
    kIterator,
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
  static absl::StatusOr<JinjaValue> List(std::vector<JinjaValue> items,
                                         SequenceKind sequence = SequenceKind::kList,
                                         JinjaRange range = {});
  // What lazy filters give: walked once, then `end` (OK: nothing more). Errors: as List.
  static absl::StatusOr<JinjaValue> Iterator(std::vector<JinjaValue> items, absl::Status end);
  // A later entry replaces the value of an earlier one of an equal key.
  // Errors: as List; INVALID_ARGUMENT for keys of another kind.
  static absl::StatusOr<JinjaValue> Mapping(std::vector<std::pair<JinjaValue, JinjaValue>> entries);
  // The evaluator owns the namespace.
  static JinjaValue Namespace(JinjaNamespace* space);
  static JinjaValue Loop(std::shared_ptr<JinjaLoop> loop);
  static JinjaValue Callable(const JinjaBuiltin* builtin);
  static JinjaValue Method(const JinjaBuiltin* builtin, JinjaValue self);
  static JinjaValue Macro(const JinjaMacro* macro);

  Kind kind() const { return static_cast<Kind>(data_.index()); }
  bool Is(Kind kind) const { return this->kind() == kind; }
  bool IsNumber() const { return Is(Kind::kBool) || Is(Kind::kInteger) || Is(Kind::kFloat); }
  bool IsWhole() const { return Is(Kind::kBool) || Is(Kind::kInteger); }
  bool IsSequence(SequenceKind sequence) const {
    return Is(Kind::kList) && this->sequence() == sequence;
  }

  // Each asks for its own kind.
  const std::string& undefined_what() const { return std::get<UndefinedData>(data_).what; }
  bool boolean() const { return std::get<bool>(data_); }
  const OriginText& text() const { return *std::get<std::shared_ptr<const OriginText>>(data_); }
  const std::vector<JinjaValue>& items() const;
  SequenceKind sequence() const;
  const JinjaRange& range() const;
  JinjaIterator& iterator() const { return *std::get<std::shared_ptr<JinjaIterator>>(data_); }
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
                            std::shared_ptr<JinjaIterator>, std::shared_ptr<const JinjaMapping>,
                            JinjaNamespace*, std::shared_ptr<JinjaLoop>, JinjaCallable>;

  explicit JinjaValue(Data data) : data_(std::move(data)) {}

  Data data_;
};

struct JinjaList {
  std::vector<JinjaValue> items;
  int depth = 1;
  SequenceKind sequence = SequenceKind::kList;
  JinjaRange range;
};

struct JinjaIterator {
  std::vector<JinjaValue> items;
  absl::Status end;
  size_t next = 0;
  int depth = 1;
};

// Keys in the order in which they came: text, numbers, none, undefined, or tuples of these.
struct JinjaMapping {
  std::vector<std::pair<JinjaValue, JinjaValue>> entries;
  absl::flat_hash_map<std::string, size_t> index;  // by MappingKey
  int depth = 1;

  // nullptr if there is no such key.
  const JinjaValue* Find(absl::string_view key) const;
  // Errors: INVALID_ARGUMENT for keys that no mapping can have.
  absl::StatusOr<const JinjaValue*> Find(const JinjaValue& key) const;
};

// {% set ns = namespace() %}: the one thing that assignments in a loop can change.
struct JinjaNamespace {
  absl::flat_hash_map<std::string, JinjaValue> values;
};

// The variable `loop`.
struct JinjaLoop {
  std::shared_ptr<const JinjaValue> items;  // a list; shared with the loop that runs over it
  size_t index = 0;
  int depth = 0;  // of loops that call themselves
  // Of what `changed` was given last, in JinjaContext::last_seen, from 1; 0: nothing yet. A loop
  // that held values could hold itself.
  size_t last_seen = 0;
  // Of {% for ... recursive %}: what loop(items) runs again, and in which scope. Not owned: scopes
  // and loops that hold each other would form chains without end.
  const JinjaStatement* recursive = nullptr;
  std::weak_ptr<JinjaScope> outer;
};

}  // namespace nightshift
