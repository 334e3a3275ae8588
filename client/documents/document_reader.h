// DocumentReader: files to documents, one at a time.
//
//   *.csv    a document a record behind the header, whose columns are its fields
//   *.jsonl  a document a line that is not blank; fields as json_record.h has them
//   others   a document a file, with the field "text"
//
// Each also has "file", its file's name, and "id". Ids are names of files, or of records FILE:LINE,
// unless they have an id of their own. What is wrong with one document is its `error`; the others
// are read all the same.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/container/flat_hash_set.h"
#include "absl/strings/string_view.h"

#include "client/documents/byte_reader.h"
#include "client/documents/csv_reader.h"
#include "client/documents/document.h"
#include "client/documents/input_paths.h"

namespace nightshift {

// One thread. Memory: one document, the paths, and up to 20 bytes for each id of a record.
class DocumentReader {
 public:
  // `id_field` names the field that ids of records are taken from; empty: "id" where there is one.
  DocumentReader(std::vector<InputPath> paths, std::string id_field)
      : paths_(std::move(paths)), id_field_(std::move(id_field)) {}

  // The next document; nothing behind the last one.
  std::optional<Document> Next();

 private:
  enum class Kind { kText, kCsv, kJsonl };

  static Kind KindOf(const std::string& path);
  std::optional<Document> NextOfFile();
  Document BeginFile();
  Document ReadTextFile(ByteReader bytes) const;
  Document ReadHeader();
  std::optional<Document> NextCsvRecord();
  std::optional<Document> NextJsonLine();
  // A whole line, cut to kMaxLineBytes and one more; nothing at the end.
  std::optional<std::string> ReadLine();
  Document OfFile(std::optional<DocumentError> error) const;
  Document OfLine(int64_t line, std::optional<DocumentError> error) const;
  // "data.csv: line 7"
  std::string PlaceOf(int64_t line) const;
  // Sets the id from the fields, checks it, and adds the fields that every document has.
  void Finish(Document& document);
  void TakeId(Document& document);

  const std::vector<InputPath> paths_;
  const std::string id_field_;
  size_t next_path_ = 0;
  // Of the file that is being read, paths_[next_path_ - 1]; none between files.
  std::optional<CsvReader> csv_;
  std::vector<std::string> columns_;
  std::optional<ByteReader> lines_;
  int64_t line_ = 0;
  absl::flat_hash_set<size_t> ids_;  // hashes of ids of records
};

}  // namespace nightshift
