#include "engine/text/gguf_pre_tokenizers.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

#include "engine/text/published_patterns.h"

namespace nightshift {
namespace {

PreTokenizerStep By(const char* pattern) {
  return {.pattern = pattern};
}

// As the tokenizer.json (or the tokenizer's source) of the models behind a name has it; the name
// says which vocabulary a file was made from, not only how it splits.
const std::vector<GgufPreTokenizer>& Rows() {
  using Steps = std::vector<PreTokenizerStep>;
  const Steps gpt2 = {By(kGpt2Pattern)};
  const Steps digits_gpt2 = {By(kEachDigitPattern), By(kGpt2Pattern)};
  const Steps llama3 = {By(kLlama3Pattern)};
  const Steps qwen2 = {By(kQwen2Pattern)};
  const Steps gpt4o = {By(kGpt4oPattern)};
  const Steps deepseek3 = {By(kUpTo3DigitsPattern), By(kDeepSeekCjkPattern), By(kDeepSeekPattern)};
  const Steps falcon = {
      {.pattern = kPunctuationPattern, .behavior = SplitBehavior::kContiguous},
      By(kGpt2Pattern),
      {.kind = PreTokenizerStep::Kind::kSplitBytes, .pattern = kDigitByteRunPattern},
      {.kind = PreTokenizerStep::Kind::kSplitBytes, .pattern = "[0-9][0-9][0-9]"}};
  static const std::vector<GgufPreTokenizer> rows = {
      {.name = "gpt-2", .steps = gpt2},
      {.name = "phi-2", .steps = gpt2},
      {.name = "mpt", .steps = gpt2, .normalize_nfc = true},   // GPT-NeoX's vocabulary
      {.name = "olmo", .steps = gpt2, .normalize_nfc = true},  // GPT-NeoX's vocabulary
      {.name = "smollm", .steps = digits_gpt2},
      {.name = "starcoder", .steps = digits_gpt2},
      {.name = "refact", .steps = digits_gpt2},  // also Granite 3
      {.name = "llama-bpe", .steps = llama3, .ignore_merges = true, .adds_bos = true},
      {.name = "llama3", .steps = llama3, .ignore_merges = true, .adds_bos = true},
      {.name = "llama-v3", .steps = llama3, .ignore_merges = true, .adds_bos = true},
      {.name = "dbrx", .steps = llama3},  // also OLMo 2
      {.name = "qwen2", .steps = qwen2, .normalize_nfc = true},
      {.name = "deepseek-r1-qwen", .steps = qwen2, .normalize_nfc = true},
      {.name = "stablelm2", .steps = qwen2, .normalize_nfc = true},
      {.name = "tekken", .steps = {By(kTekkenPattern)}, .ignore_merges = true, .adds_bos = true},
      {.name = "gpt-4o", .steps = gpt4o},
      {.name = "llama4", .steps = gpt4o},
      {.name = "deepseek-v3", .steps = deepseek3},
      {.name = "falcon", .steps = falcon},
  };
  return rows;
}

}  // namespace

absl::StatusOr<const GgufPreTokenizer*> FindGgufPreTokenizer(const std::string& name) {
  for (const GgufPreTokenizer& row : Rows()) {
    if (name == row.name) return &row;
  }
  const auto append_name = [](std::string* out, const GgufPreTokenizer& row) {
    absl::StrAppend(out, row.name);
  };
  return absl::InvalidArgumentError(absl::StrCat("GGUF tokenizer: tokenizer.ggml.pre \"", name,
                                                 "\" is not supported, only ",
                                                 absl::StrJoin(Rows(), ", ", append_name)));
}

}  // namespace nightshift
