// Document: one thing to make a request of: a text file, a row of a CSV file, an object of a JSONL
// file.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace nightshift {

// Largest text of a document, and of a CSV field: with its instruction it fits a message to the
// daemon, which cuts it.
inline constexpr int64_t kMaxDocumentBytes = 3 << 20;

// Longest id of a document: with "#999/1000" of a part behind it below the daemon's 512 bytes.
inline constexpr size_t kMaxDocumentIdBytes = 400;

// Fields that every document has, unless it has one of its own with this name.
inline constexpr char kFileField[] = "file";
inline constexpr char kIdField[] = "id";

struct DocumentField {
  std::string name;
  std::string value;  // valid UTF-8 without NUL
  bool is_own = true;  // false: it names the document and is none of its content
};

// Why nothing can be made of a document. `code` is as in result lines.
struct DocumentError {
  std::string code;
  std::string message;
};

namespace document_code {
inline constexpr char kUnreadable[] = "document_unreadable";
inline constexpr char kEmpty[] = "document_empty";
inline constexpr char kTooLarge[] = "document_too_large";
inline constexpr char kNotText[] = "document_not_text";
inline constexpr char kMalformed[] = "document_malformed";
inline constexpr char kMissingField[] = "document_missing_field";
inline constexpr char kInvalidId[] = "document_invalid_id";
inline constexpr char kNotMerged[] = "document_not_merged";
// The row of an earlier job, whose result this is, failed.
inline constexpr char kFailedBefore[] = "document_failed_before";
}  // namespace document_code

struct Document {
  std::string id;
  std::vector<DocumentField> fields;
  // Every document of the file has these fields (false: they come with each object).
  bool has_fixed_fields = true;
  std::optional<DocumentError> error;  // then there may be no fields
  // Of outputs that are merged: how many parts the document had been split in, and those of the
  // level before, below which this one must stay. 0: it is no such document.
  int64_t first_parts = 0;
  int64_t last_parts = 0;
};

}  // namespace nightshift
