// Input: a list's name and a token. What was not written for this list is refused; what is written
// is read back, and refused for another list, another secret, and with any byte changed.
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#include "server/rpc/page_token.h"
#include "tests/fuzz/fuzz_input.h"

namespace nightshift {
namespace {

void ExpectRefused(const PageTokens& tokens, const std::string& list, const std::string& token) {
  CHECK(absl::IsInvalidArgument(tokens.Read(list, token).status()));
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const PageTokens tokens;
  static const PageTokens others;
  const std::vector<std::string> parts = InputParts(InputText(data, size), 2);
  const std::string& list = parts[0];
  const std::string& text = parts[1];
  ExpectRefused(tokens, list, text);
  constexpr size_t kMostTextBytes = 600;  // what fits into a token
  const PagePosition position = {.number = static_cast<int64_t>(size) - 1000,
                                 .text = text.substr(0, kMostTextBytes)};
  std::string token = tokens.Write(list, position);
  const absl::StatusOr<PagePosition> read = tokens.Read(list, token);
  CHECK(read.ok());
  CHECK_EQ(read->number, position.number);
  CHECK(read->text == position.text);
  ExpectRefused(tokens, list + "x", token);
  ExpectRefused(others, list, token);
  token[size % token.size()] = token[size % token.size()] == 'A' ? 'B' : 'A';
  ExpectRefused(tokens, list, token);
  return 0;
}

}  // namespace nightshift
