// PromptTemplate: a text with fields, to a prompt of a document.
//
// {{name}} stands for the document's field of that name, spaces inside the braces do not count;
// {{{{ stands for {{, all else for itself. Values are text: nothing in them is looked for.
// A template is the user's message, unless its first line is [system], [user] or [prompt]: then
// such a line begins each part. [system] and [user] are messages of a chat, [prompt] alone is a
// prompt without chat template. Blank lines at the ends of a part do not count.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

#include "client/documents/document.h"

namespace nightshift {

struct PromptMessage {
  std::string role;  // empty: a prompt, the only one
  std::string content;
};

// Where a field's value lies in a rendered prompt.
struct FieldPlace {
  size_t message = 0;
  size_t offset = 0;  // bytes
  size_t length = 0;
};

struct RenderedPrompt {
  std::vector<PromptMessage> messages;
  // Of the longest of the document's own fields that the template names, which is what is cut when
  // the prompt is too long: one each time that it is named.
  std::vector<FieldPlace> longest_field;
};

// Immutable.
class PromptTemplate {
 public:
  // `name` is for messages. Errors: INVALID_ARGUMENT with the line.
  static absl::StatusOr<PromptTemplate> Parse(const std::string& name, absl::string_view source);
  // As Parse. Errors: also of reading, and for a file that is not UTF-8.
  static absl::StatusOr<PromptTemplate> Load(const std::string& path);

  // INVALID_ARGUMENT when the template names a field that the document does not have, or none of
  // those that are its own, so that each would get the same prompt; names the fields that there are.
  absl::Status Check(const Document& document) const;
  // Of a document that passes Check.
  RenderedPrompt Render(const Document& document) const;

 private:
  // Text, or a field.
  struct Piece {
    bool is_field = false;
    std::string text;  // or the field's name
    int64_t line = 0;
  };
  struct Part {
    std::string role;
    std::vector<Piece> pieces;
  };

  explicit PromptTemplate(std::string name) : name_(std::move(name)) {}
  absl::Status ParsePart(const std::string& role, absl::string_view text, int64_t line);
  absl::Status CheckParts() const;
  // The fields of the document that the template names.
  std::vector<const DocumentField*> UsedFields(const Document& document) const;

  std::string name_;
  std::vector<Part> parts_;
};

}  // namespace nightshift
