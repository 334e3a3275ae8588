// CsvReader: records of a CSV file as RFC 4180 has them.
//
// Fields are separated by commas; a field in double quotes may hold commas, line ends and, doubled,
// double quotes. Lines end with LF or CRLF, the last one may end without. Beyond the RFC: a byte
// order mark is skipped, and so are blank lines.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "client/documents/byte_reader.h"

namespace nightshift {

struct CsvRecord {
  int64_t line = 0;  // 1-based, of its first byte
  std::vector<std::string> values;
  std::string error;  // what is wrong with it; empty: nothing
};

// One thread. Memory: one record, whose values are kept to max_value_bytes.
class CsvReader {
 public:
  CsvReader(ByteReader bytes, int64_t max_value_bytes)
      : bytes_(std::move(bytes)), max_value_bytes_(max_value_bytes) {}

  // The next record, nothing at the end or after an error of reading. Behind a record that is
  // malformed it goes on with the next line.
  std::optional<CsvRecord> Next();
  const absl::Status& status() const { return bytes_.status(); }

 private:
  void SkipMarkAndBlankLines();
  // Reads a value to what ends it; true when another one of the record follows.
  bool ReadValue(CsvRecord& record);
  void ReadQuoted(CsvRecord& record, std::string& value);
  void ReadPlain(CsvRecord& record, std::string& value);
  bool ReadSeparator(CsvRecord& record);
  void SkipLine();
  std::optional<char> NextByte();
  void Append(char byte, const CsvRecord& record, std::string& value);

  ByteReader bytes_;
  const int64_t max_value_bytes_;
  int64_t line_ = 1;
  bool at_start_ = true;
  size_t oversized_ = 0;  // a field of the record, from 1, that is cut; 0: none
};

}  // namespace nightshift
