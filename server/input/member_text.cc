#include "server/input/member_text.h"

#include <utility>

#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"

namespace nightshift {
namespace {

using nlohmann::json;

// A string as JSON. The line is valid UTF-8, so nothing is replaced.
std::string Quoted(const std::string& text) {
  return json(text).dump(-1, ' ', false, json::error_handler_t::replace);
}

// Follows the path through the parser's events and writes down those of the value at its end.
class MemberWriter : public nlohmann::json_sax<json> {
 public:
  explicit MemberWriter(const std::vector<std::string>& path) : path_(path) {}

  bool null() override { return Scalar("null"); }
  bool boolean(bool value) override { return Scalar(value ? "true" : "false"); }
  bool number_integer(number_integer_t value) override { return Scalar(absl::StrCat(value)); }
  bool number_unsigned(number_unsigned_t value) override { return Scalar(absl::StrCat(value)); }
  bool number_float(number_float_t /*value*/, const string_t& text) override {
    return Scalar(text);
  }
  bool string(string_t& value) override { return Scalar(Quoted(value)); }
  bool binary(binary_t& /*value*/) override { return false; }
  bool start_object(size_t /*elements*/) override { return Open("{"); }
  bool start_array(size_t /*elements*/) override { return Open("["); }
  bool end_object() override { return Close("}"); }
  bool end_array() override { return Close("]"); }

  bool key(string_t& name) override {
    if (written_depth_ > 0) {
      Separate();
      absl::StrAppend(&text_, Quoted(name), ":");
      after_name_ = true;
    } else {
      is_next_ = depth_ == on_path_ && on_path_ > 0 && on_path_ <= path_.size() &&
                 name == path_[on_path_ - 1];
      // What the same name gave before does not count.
      if (is_next_) text_.clear();
    }
    return true;
  }

  bool parse_error(size_t /*position*/, const std::string& /*last_token*/,
                   const nlohmann::detail::exception& /*error*/) override {
    return false;
  }

  std::string Take() { return std::move(text_); }

 private:
  // Whether the value that begins now is the wanted one, or inside it.
  bool IsWanted() const { return written_depth_ > 0 || (is_next_ && on_path_ == path_.size()); }

  void Separate() {
    if (!after_name_ && !text_.empty() && text_.back() != '{' && text_.back() != '[') {
      text_.push_back(',');
    }
    after_name_ = false;
  }

  bool Scalar(const std::string& value) {
    if (IsWanted()) {
      Separate();
      text_ += value;
    }
    is_next_ = false;
    return true;
  }

  bool Open(absl::string_view bracket) {
    if (IsWanted()) {
      Separate();
      text_.append(bracket.data(), bracket.size());
      ++written_depth_;
    } else if (bracket == "{" && (depth_ == 0 || is_next_)) {
      ++on_path_;
    }
    is_next_ = false;
    ++depth_;
    return true;
  }

  bool Close(absl::string_view bracket) {
    if (written_depth_ > 0) {
      text_.append(bracket.data(), bracket.size());
      --written_depth_;
    } else if (depth_ == on_path_) {
      --on_path_;
    }
    --depth_;
    return true;
  }

  const std::vector<std::string>& path_;
  std::string text_;
  size_t depth_ = 0;          // containers that are open
  size_t on_path_ = 0;        // the first of them that lead to the value
  size_t written_depth_ = 0;  // those of the value itself
  bool is_next_ = false;      // the name just read is the next of the path
  bool after_name_ = false;   // the last thing written is a name
};

}  // namespace

std::string MemberText(absl::string_view line, const std::vector<std::string>& path) {
  MemberWriter writer(path);
  json::sax_parse(line.begin(), line.end(), &writer);
  return writer.Take();
}

}  // namespace nightshift
