// Input: a CSV file. Records come in the order of their lines; one without an error is the same when all
// its values are written in quotes and read again.
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/str_replace.h"

#include "client/documents/byte_reader.h"
#include "client/documents/csv_reader.h"
#include "tests/fuzz/fuzz_input.h"

namespace nightshift {
namespace {

constexpr int64_t kMaxValueBytes = 64;

std::vector<CsvRecord> ReadAll(absl::string_view bytes) {
  const MemoryFile file(bytes);
  absl::StatusOr<ByteReader> reader = ByteReader::Open(file.path());
  CHECK(reader.ok());
  CsvReader csv(*std::move(reader), kMaxValueBytes);
  std::vector<CsvRecord> records;
  while (std::optional<CsvRecord> record = csv.Next()) {
    records.push_back(*std::move(record));
  }
  CHECK(csv.status().ok());
  return records;
}

std::string InQuotes(const CsvRecord& record) {
  std::string line;
  for (const std::string& value : record.values) {
    line += line.empty() ? "\"" : ",\"";
    line += absl::StrReplaceAll(value, {{"\"", "\"\""}}) + "\"";
  }
  return line + "\r\n";
}

void CheckSizes(const CsvRecord& record) {
  CHECK(!record.values.empty());
  for (const std::string& value : record.values) {
    CHECK_LE(static_cast<int64_t>(value.size()), kMaxValueBytes);
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  int64_t line = 0;
  std::vector<CsvRecord> good;
  std::string in_quotes;
  for (CsvRecord& record : ReadAll(InputText(data, size))) {
    CHECK_LT(line, record.line);
    line = record.line;
    CheckSizes(record);
    if (record.error.empty()) {
      in_quotes += InQuotes(record);
      good.push_back(std::move(record));
    }
  }
  const std::vector<CsvRecord> again = ReadAll(in_quotes);
  CHECK_EQ(again.size(), good.size());
  for (size_t i = 0; i < good.size(); ++i) {
    CHECK(again[i].error.empty());
    CHECK(again[i].values == good[i].values);
  }
  return 0;
}

}  // namespace nightshift
