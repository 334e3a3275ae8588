#include "client/documents/document_reader.h"

#include <algorithm>
#include <functional>
#include <set>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"

#include "client/documents/json_record.h"
#include "client/documents/text_check.h"

namespace nightshift {
namespace {

constexpr size_t kMaxLineBytes = 16 << 20;  // the daemon's own limit of a row

DocumentError Unreadable(const absl::Status& error) {
  return {document_code::kUnreadable, std::string(error.message())};
}

DocumentField* Find(std::vector<DocumentField>& fields, absl::string_view name) {
  const auto found = std::find_if(fields.begin(), fields.end(), [&](const DocumentField& field) {
    return field.name == name;
  });
  return found == fields.end() ? nullptr : &*found;
}

void AddUnlessThere(const char* name, const std::string& value, Document& document) {
  if (Find(document.fields, name) == nullptr) {
    document.fields.push_back({name, value, /*is_own=*/false});
  }
}

// What is wrong with the columns; empty: nothing.
std::string HeaderFault(const std::vector<std::string>& columns) {
  std::set<std::string> seen;
  for (const std::string& column : columns) {
    if (column.empty()) {
      return "has a column without a name";
    }
    if (!seen.insert(column).second) {
      return absl::StrCat("has the column ", column, " twice");
    }
  }
  return "";
}

}  // namespace

DocumentReader::Kind DocumentReader::KindOf(const std::string& path) {
  return absl::EndsWithIgnoreCase(path, ".csv")     ? Kind::kCsv
         : absl::EndsWithIgnoreCase(path, ".jsonl") ? Kind::kJsonl
                                                    : Kind::kText;
}

std::optional<Document> DocumentReader::Next() {
  while (true) {
    if (std::optional<Document> document = NextOfFile()) {
      Finish(*document);
      return document;
    }
    if (next_path_ == paths_.size()) {
      return std::nullopt;
    }
    ++next_path_;
    Document document = BeginFile();
    // Of a file of records there is a document of its own only when it cannot be read.
    if (document.error.has_value() || KindOf(paths_[next_path_ - 1].path) == Kind::kText) {
      Finish(document);
      return document;
    }
  }
}

std::optional<Document> DocumentReader::NextOfFile() {
  std::optional<Document> document;
  absl::Status status;
  if (csv_.has_value()) {
    document = NextCsvRecord();
    status = csv_->status();
  } else if (lines_.has_value()) {
    document = NextJsonLine();
    status = lines_->status();
  }
  if (document.has_value()) {
    return document;
  }
  csv_.reset();
  lines_.reset();
  return status.ok() ? std::nullopt : std::optional(OfFile(Unreadable(status)));
}

Document DocumentReader::BeginFile() {
  const InputPath& input = paths_[next_path_ - 1];
  absl::StatusOr<ByteReader> bytes = ByteReader::Open(input.path);
  if (!bytes.ok()) {
    return OfFile(Unreadable(bytes.status()));
  }
  line_ = 0;
  switch (KindOf(input.path)) {
    case Kind::kText:
      return ReadTextFile(*std::move(bytes));
    case Kind::kCsv:
      csv_.emplace(*std::move(bytes), kMaxDocumentBytes);
      return ReadHeader();
    case Kind::kJsonl:
      lines_.emplace(*std::move(bytes));
      return OfFile(lines_->Peek().has_value()
                        ? std::nullopt
                        : std::optional(DocumentError{document_code::kEmpty, absl::StrCat(
                              input.name, ": the file is empty")}));
  }
  return OfFile(std::nullopt);
}

Document DocumentReader::ReadTextFile(ByteReader bytes) const {
  const std::string& name = paths_[next_path_ - 1].name;
  std::string text;
  while (static_cast<int64_t>(text.size()) <= kMaxDocumentBytes) {
    const std::optional<char> byte = bytes.Next();
    if (!byte.has_value()) {
      break;
    }
    text += *byte;
  }
  if (!bytes.status().ok()) {
    return OfFile(Unreadable(bytes.status()));
  }
  const auto size = static_cast<int64_t>(text.size());
  if (size > kMaxDocumentBytes) {
    return OfFile(DocumentError{document_code::kTooLarge,
                                absl::StrCat(name, ": has ", std::max(size, bytes.size_bytes()),
                                             " bytes, at most ", kMaxDocumentBytes)});
  }
  if (std::optional<DocumentError> fault = CleanText(name, text)) {
    return OfFile(std::move(fault));
  }
  if (absl::StripAsciiWhitespace(text).empty()) {
    return OfFile(DocumentError{document_code::kEmpty, absl::StrCat(name, ": has no text")});
  }
  Document document = OfFile(std::nullopt);
  document.fields.push_back({"text", std::move(text)});
  return document;
}

Document DocumentReader::ReadHeader() {
  const std::string& name = paths_[next_path_ - 1].name;
  std::optional<CsvRecord> header = csv_->Next();
  std::optional<DocumentError> fault;
  if (!csv_->status().ok()) {
    fault = Unreadable(csv_->status());
  } else if (!header.has_value()) {
    fault = DocumentError{document_code::kEmpty, absl::StrCat(name, ": the file is empty")};
  } else {
    std::string wrong = header->error;
    for (std::string& column : header->values) {
      if (wrong.empty() && (fault = CleanText(absl::StrCat(name, ": header"), column))) {
        break;
      }
      column = std::string(absl::StripAsciiWhitespace(column));
    }
    wrong = wrong.empty() ? HeaderFault(header->values) : wrong;
    if (!fault.has_value() && !wrong.empty()) {
      fault = DocumentError{document_code::kMalformed, absl::StrCat(name, ": header: ", wrong)};
    }
  }
  if (fault.has_value()) {
    csv_.reset();
    return OfFile(std::move(fault));
  }
  columns_ = std::move(header->values);
  return OfFile(std::nullopt);
}

std::optional<Document> DocumentReader::NextCsvRecord() {
  std::optional<CsvRecord> record = csv_->Next();
  if (!record.has_value()) {
    return std::nullopt;
  }
  const std::string& name = paths_[next_path_ - 1].name;
  const auto malformed = [&](const std::string& why) {
    return OfLine(record->line,
                  DocumentError{document_code::kMalformed, absl::StrCat(name, ": ", why)});
  };
  if (!record->error.empty()) {
    return malformed(record->error);
  }
  if (record->values.size() != columns_.size()) {
    return malformed(absl::StrCat("line ", record->line, ": has ", record->values.size(),
                                  " fields, the header ", columns_.size()));
  }
  Document document = OfLine(record->line, std::nullopt);
  for (size_t i = 0; i < columns_.size(); ++i) {
    const std::string what = absl::StrCat(PlaceOf(record->line), ": ", columns_[i]);
    if (std::optional<DocumentError> fault = CleanText(what, record->values[i])) {
      return OfLine(record->line, std::move(fault));
    }
    document.fields.push_back({columns_[i], std::move(record->values[i])});
  }
  return document;
}

std::optional<std::string> DocumentReader::ReadLine() {
  if (!lines_->Peek().has_value()) {
    return std::nullopt;
  }
  ++line_;
  std::string line;
  while (const std::optional<char> byte = lines_->Next()) {
    if (*byte == '\n') {
      break;
    }
    if (line.size() <= kMaxLineBytes) {
      line += *byte;
    }
  }
  return line;
}

std::optional<Document> DocumentReader::NextJsonLine() {
  std::optional<std::string> line = ReadLine();
  while (line.has_value() && absl::StripAsciiWhitespace(*line).empty()) {
    line = ReadLine();
  }
  if (!line.has_value() || !lines_->status().ok()) {
    return std::nullopt;
  }
  const std::string place = PlaceOf(line_);
  if (line->size() > kMaxLineBytes) {
    return OfLine(line_, DocumentError{document_code::kTooLarge,
                                       absl::StrCat(place, ": has more than ", kMaxLineBytes,
                                                    " bytes")});
  }
  if (std::optional<DocumentError> fault = CleanText(place, *line)) {
    return OfLine(line_, std::move(fault));
  }
  JsonRecord record = ReadJsonRecord(place, *line);
  Document document = OfLine(line_, std::move(record.error));
  document.fields = std::move(record.fields);
  for (DocumentField& field : document.fields) {
    if (static_cast<int64_t>(field.value.size()) > kMaxDocumentBytes && !document.error) {
      document.error = {document_code::kTooLarge,
                        absl::StrCat(place, ": ", field.name, " has ", field.value.size(),
                                     " bytes, at most ", kMaxDocumentBytes)};
    }
    // An escaped NUL is no text either.
    if (std::optional<DocumentError> fault =
            CleanText(absl::StrCat(place, ": ", field.name), field.value);
        fault && !document.error) {
      document.error = std::move(fault);
    }
  }
  return document;
}

Document DocumentReader::OfFile(std::optional<DocumentError> error) const {
  Document document;
  document.id = paths_[next_path_ - 1].name;
  document.error = std::move(error);
  return document;
}

Document DocumentReader::OfLine(int64_t line, std::optional<DocumentError> error) const {
  Document document = OfFile(std::move(error));
  absl::StrAppend(&document.id, ":", line);
  document.has_fixed_fields = csv_.has_value();
  return document;
}

std::string DocumentReader::PlaceOf(int64_t line) const {
  return absl::StrCat(paths_[next_path_ - 1].name, ": line ", line);
}

void DocumentReader::Finish(Document& document) {
  if (csv_.has_value() || lines_.has_value()) {
    TakeId(document);
  }
  AddUnlessThere(kFileField, paths_[next_path_ - 1].name, document);
  AddUnlessThere(kIdField, document.id, document);
}

void DocumentReader::TakeId(Document& document) {
  const std::string name = id_field_.empty() ? kIdField : id_field_;
  DocumentField* field = Find(document.fields, name);
  if (field == nullptr) {
    if (!id_field_.empty() && !document.error.has_value()) {
      document.error = {document_code::kMissingField,
                        absl::StrCat(document.id, ": has no field ", name, ", which --id-field names")};
    }
    return;
  }
  field->is_own = false;
  std::string wrong;
  if (field->value.empty() || field->value.size() > kMaxDocumentIdBytes) {
    wrong = absl::StrCat("has ", field->value.size(), " bytes, must have 1 to ", kMaxDocumentIdBytes);
  } else if (!ids_.insert(std::hash<std::string>()(field->value)).second) {
    wrong = absl::StrCat("is ", field->value, ", which a record before it has");
  }
  if (wrong.empty()) {
    document.id = field->value;
  } else if (!document.error.has_value()) {
    document.error = {document_code::kInvalidId,
                      absl::StrCat(document.id, ": ", name, " ", wrong)};
  }
}

}  // namespace nightshift
