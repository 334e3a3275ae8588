#include "client/documents/csv_reader.h"

#include "absl/strings/str_cat.h"

namespace nightshift {

std::optional<CsvRecord> CsvReader::Next() {
  SkipMarkAndBlankLines();
  if (!bytes_.Peek().has_value()) {
    return std::nullopt;
  }
  CsvRecord record;
  record.line = line_;
  oversized_ = 0;
  while (ReadValue(record)) {
  }
  if (record.error.empty() && oversized_ > 0) {
    record.error = absl::StrCat("line ", record.line, ": field ", oversized_, " has more than ",
                                max_value_bytes_, " bytes");
  }
  return status().ok() ? std::optional(std::move(record)) : std::nullopt;
}

void CsvReader::SkipMarkAndBlankLines() {
  if (std::exchange(at_start_, false)) {
    for (const char byte : {'\xEF', '\xBB', '\xBF'}) {
      if (bytes_.Peek() != byte) {
        break;
      }
      bytes_.Next();
    }
  }
  while (bytes_.Peek() == '\n' || bytes_.Peek() == '\r') {
    NextByte();
  }
}

bool CsvReader::ReadValue(CsvRecord& record) {
  std::string& value = record.values.emplace_back();
  if (bytes_.Peek() == '"') {
    ReadQuoted(record, value);
  } else {
    ReadPlain(record, value);
  }
  return ReadSeparator(record);
}

void CsvReader::ReadQuoted(CsvRecord& record, std::string& value) {
  const int64_t opened = line_;
  NextByte();
  while (const std::optional<char> byte = NextByte()) {
    if (*byte == '"' && bytes_.Peek() != '"') {
      return;
    }
    if (*byte == '"') {
      NextByte();
    }
    Append(*byte, record, value);
  }
  record.error = absl::StrCat("line ", opened, ": the quote that opens here is not closed");
}

void CsvReader::ReadPlain(CsvRecord& record, std::string& value) {
  while (const std::optional<char> byte = bytes_.Peek()) {
    if (*byte == ',' || *byte == '\n' || *byte == '\r') {
      return;
    }
    if (*byte == '"') {
      record.error = absl::StrCat("line ", line_, ": field ", record.values.size(),
                                  " has a quote but does not begin with one; put it in quotes and "
                                  "double those in it");
      return;
    }
    Append(*byte, record, value);
    NextByte();
  }
}

bool CsvReader::ReadSeparator(CsvRecord& record) {
  if (bytes_.Peek() == ',' && record.error.empty()) {
    NextByte();
    return true;
  }
  if (bytes_.Peek() == '\r') {
    NextByte();
  }
  const std::optional<char> byte = bytes_.Peek();
  if (byte.has_value() && byte != '\n' && record.error.empty()) {
    record.error = absl::StrCat("line ", line_, ": field ", record.values.size(),
                                " goes on behind its end; put it in quotes and double those in it");
  }
  SkipLine();
  return false;
}

// To behind the end of the line.
void CsvReader::SkipLine() {
  std::optional<char> byte = NextByte();
  while (byte.has_value() && byte != '\n') {
    byte = NextByte();
  }
}

std::optional<char> CsvReader::NextByte() {
  const std::optional<char> byte = bytes_.Next();
  line_ += byte == '\n' ? 1 : 0;
  return byte;
}

void CsvReader::Append(char byte, const CsvRecord& record, std::string& value) {
  if (static_cast<int64_t>(value.size()) < max_value_bytes_) {
    value += byte;
  } else {
    oversized_ = record.values.size();
  }
}

}  // namespace nightshift
