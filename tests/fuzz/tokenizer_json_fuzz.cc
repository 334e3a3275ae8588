// Input: tokenizer.json, tokenizer_config.json and a text to encode.
#include <string>
#include <vector>

#include "absl/status/statusor.h"

#include "engine/text/tokenizer.h"
#include "engine/text/tokenizer_spec.h"
#include "kernels/base/utf8.h"
#include "tests/fuzz/fuzz_input.h"

namespace nightshift {
namespace {

bool IsUtf8(absl::string_view text) {
  return FindInvalidUtf8(text) == absl::string_view::npos;
}

// The pack's form of a spec reads back as the same spec.
void CheckPackForm(const TokenizerSpec& spec) {
  const std::string text = TokenizerSpecToJson(spec);
  const auto again = TokenizerSpecFromJson(text);
  CHECK(again.ok());
  CHECK(TokenizerSpecToJson(*again) == text);
}

// Ids lie in the vocabulary; decoding is UTF-8, the same at once and token by token.
void CheckText(const Tokenizer& tokenizer, const std::string& text) {
  const auto ids = tokenizer.Encode(text, {{.first = 0, .length = text.size()}});
  if (!ids.ok()) {
    return;
  }
  for (const int32_t id : *ids) {
    CHECK_GE(id, 0);
    CHECK_LT(static_cast<size_t>(id), tokenizer.spec().tokens.size());
  }
  CHECK(IsUtf8(tokenizer.Decode(*ids, /*skip_special=*/false)));
  TextAccumulator accumulator(tokenizer);
  for (const int32_t id : *ids) {
    accumulator.Append(id);
    CHECK(IsUtf8(accumulator.text()));
  }
  accumulator.Finish();
  CHECK(accumulator.text() == tokenizer.Decode(*ids, /*skip_special=*/true));
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::vector<std::string> parts = InputParts(InputText(data, size), 3);
  const auto spec = TokenizerSpecFromHuggingFace(parts[0], parts[1]);
  if (!spec.ok()) {
    return 0;
  }
  const auto tokenizer = Tokenizer::Create(*spec);
  if (tokenizer.ok()) {
    CheckPackForm(*spec);
    CheckText(**tokenizer, parts[2]);
  }
  return 0;
}

}  // namespace nightshift
