#include "server/input/json_line.h"

#include <string>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"

#include "kernels/base/utf8.h"
#include "server/input/row_error.h"

namespace nightshift {
namespace {

using nlohmann::json;

absl::Status Malformed(absl::string_view problem, size_t offset) {
  return RowError(reason::kInputMalformed, row_code::kInvalidJsonLine, "",
                  absl::StrCat(problem, " at byte ", offset, " of the line"));
}

// Builds the document from the parser's events and stops it at the limits.
class Builder : public nlohmann::json_sax<json> {
 public:
  explicit Builder(const ParseLimits& limits) : limits_(limits) {}

  bool null() override { return Add(nullptr); }
  bool boolean(bool value) override { return Add(value); }
  bool number_integer(number_integer_t value) override { return Add(value); }
  bool number_unsigned(number_unsigned_t value) override { return Add(value); }
  bool number_float(number_float_t value, const string_t& /*text*/) override { return Add(value); }
  bool string(string_t& value) override { return Add(std::move(value)); }
  bool binary(binary_t& /*value*/) override { return false; }
  bool start_object(size_t /*elements*/) override { return Open(json::value_t::object); }
  bool start_array(size_t /*elements*/) override { return Open(json::value_t::array); }
  bool end_object() override { return Close(); }
  bool end_array() override { return Close(); }
  bool key(string_t& name) override {
    name_ = std::move(name);
    return true;
  }

  bool parse_error(size_t position, const std::string& /*last_token*/,
                   const nlohmann::detail::exception& error) override {
    // `position` counts the bytes read, the wrong one included.
    const size_t offset = position == 0 ? 0 : position - 1;
    constexpr int kNumberOverflow = 406;
    if (error.id == kNumberOverflow) {
      status_ = Malformed("number out of range", offset);
    } else if (absl::StrContains(error.what(), "surrogate")) {
      status_ = Malformed("lone surrogate escape", offset);
    } else {
      status_ = Malformed("not one JSON value", offset);
    }
    return false;
  }

  absl::StatusOr<json> Take() {
    if (!status_.ok()) {
      return status_;
    }
    return std::move(root_);
  }

 private:
  json* Place(json value) {
    if (open_.empty()) {
      root_ = std::move(value);
      return &root_;
    }
    json& parent = *open_.back();
    if (parent.is_array()) {
      parent.push_back(std::move(value));
      return &parent.back();
    }
    json& member = parent[name_];
    member = std::move(value);
    return &member;
  }

  bool Count() {
    if (++values_ > limits_.max_json_values) {
      status_ =
          RowError(reason::kInputMalformed, row_code::kInvalidJsonLine, "",
                   absl::StrCat("line holds more than ", limits_.max_json_values, " JSON values"));
      return false;
    }
    return true;
  }

  bool Add(json value) {
    if (!Count()) {
      return false;
    }
    Place(std::move(value));
    return true;
  }

  bool Open(json::value_t type) {
    if (!Count()) {
      return false;
    }
    if (static_cast<int64_t>(open_.size()) >= limits_.max_json_depth) {
      status_ = RowError(reason::kInputMalformed, row_code::kInvalidJsonLine, "",
                         absl::StrCat("line nests deeper than ", limits_.max_json_depth));
      return false;
    }
    open_.push_back(Place(json(type)));
    return true;
  }

  bool Close() {
    open_.pop_back();
    return true;
  }

  const ParseLimits& limits_;
  json root_;
  // Containers not closed yet. A container's address holds while it is open: its parent grows only
  // after it was closed.
  std::vector<json*> open_;
  std::string name_;
  int64_t values_ = 0;
  absl::Status status_;
};

}  // namespace

absl::StatusOr<json> ParseJsonLine(absl::string_view line, const ParseLimits& limits) {
  if (static_cast<int64_t>(line.size()) > limits.max_line_bytes) {
    return RowError(reason::kInputMalformed, row_code::kInvalidJsonLine, "",
                    absl::StrCat("line of ", line.size(), " bytes is longer than the limit of ",
                                 limits.max_line_bytes));
  }
  if (const size_t invalid = FindInvalidUtf8(line); invalid != absl::string_view::npos) {
    return Malformed("invalid UTF-8", invalid);
  }
  Builder builder(limits);
  json::sax_parse(line.begin(), line.end(), &builder);
  auto document = builder.Take();
  if (document.ok() && !document->is_object()) {
    return RowError(reason::kInputMalformed, row_code::kInvalidJsonLine, "",
                    absl::StrCat("line must be a JSON object, is ", document->type_name()));
  }
  return document;
}

}  // namespace nightshift
