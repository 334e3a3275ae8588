// Tokenizer files that nobody vouches for: what they ask and we do not have is refused by name.
#include "engine/text/tokenizer_spec.h"

#include <functional>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "engine/text/tokenizer.h"
#include "tests/engine/text/golden_files.h"
#include "tests/support/status_matchers.h"

namespace nightshift {
namespace {

using nlohmann::json;

json MinimalTokenizer() {
  return json::parse(R"({
    "added_tokens": [{"id": 3, "content": "</s>", "special": true}],
    "normalizer": null,
    "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": false, "use_regex": true},
    "post_processor": null,
    "decoder": {"type": "ByteLevel"},
    "model": {"type": "BPE", "vocab": {"a": 0, "b": 1, "ab": 2, "</s>": 3}, "merges": [["a", "b"]]}
  })");
}

absl::StatusOr<std::unique_ptr<Tokenizer>> Load(const json& document,
                                                const std::string& config = "") {
  auto spec = TokenizerSpecFromHuggingFace(document.dump(), config);
  if (!spec.ok()) return spec.status();
  return Tokenizer::Create(*std::move(spec));
}

TEST(TokenizerSpecTest, LoadsAMinimalFile) {
  ASSERT_OK_AND_ASSIGN(const auto tokenizer, Load(MinimalTokenizer()));
  ASSERT_OK_AND_ASSIGN(const std::vector<int32_t> ids, tokenizer->Encode("aab", {}));
  EXPECT_EQ(ids, (std::vector<int32_t>{0, 2}));
}

struct Refusal {
  const char* pointer;  // what is replaced
  std::string value;
  const char* message;
};

std::string SplitBy(const std::string& regex, const std::string& behavior = "Isolated") {
  const json split = {{"type", "Split"}, {"pattern", {{"Regex", regex}}}, {"behavior", behavior}};
  const json members = json::array({split, {{"type", "ByteLevel"}}});
  return json({{"type", "Sequence"}, {"pretokenizers", members}}).dump();
}

TEST(TokenizerSpecTest, RefusesByNameWhatItDoesNotHave) {
  const std::vector<Refusal> cases = {
      {"/model/type", R"("Unigram")", "model Unigram"},
      {"/model/type", R"("WordPiece")", "model WordPiece"},
      {"/model/byte_fallback", "true", "byte_fallback"},
      {"/model/dropout", "0.1", "dropout"},
      {"/model/end_of_word_suffix", R"("</w>")", "end_of_word_suffix"},
      {"/model/continuing_subword_prefix", R"("##")", "continuing_subword_prefix"},
      {"/normalizer", R"({"type": "NFKC"})", "normalizer NFKC"},
      {"/normalizer", R"({"type": "Sequence", "normalizers": [{"type": "Lowercase"}]})",
       "normalizer Lowercase"},
      {"/pre_tokenizer", R"({"type": "Metaspace"})", "pre-tokenizer Metaspace"},
      {"/pre_tokenizer", "null", "no ByteLevel"},
      {"/pre_tokenizer", SplitBy("a", "Removed"), "behavior Removed"},
      {"/pre_tokenizer", SplitBy("(?<name>a)"), "is not supported"},
      {"/pre_tokenizer", SplitBy("[a-z&&[^b]]"), "&&"},
      {"/pre_tokenizer", SplitBy("a{1,2}+"), "{1,2}+"},
      {"/pre_tokenizer", SplitBy("^a$"), "^ at offset 0"},
      {"/pre_tokenizer", SplitBy("a)"), "parenthes"},
      {"/pre_tokenizer", SplitBy("\\p{Nonsense}"), "unknown property"},
      {"/post_processor", R"({"type": "RobertaProcessing"})", "post-processor RobertaProcessing"},
      {"/post_processor", R"({"type": "TemplateProcessing", "single": [
        {"Sequence": {"id": "A"}}, {"SpecialToken": {"id": "</s>"}}]})",
       "TemplateProcessing"},
      {"/decoder", R"({"type": "WordPiece"})", "decoder WordPiece"},
      {"/decoder", "null", "no decoder"},
  };
  for (const Refusal& refusal : cases) {
    json document = MinimalTokenizer();
    document[json::json_pointer(refusal.pointer)] = json::parse(refusal.value);
    EXPECT_THAT(Load(document), StatusIs(absl::StatusCode::kInvalidArgument, refusal.message))
        << refusal.pointer << " " << refusal.value;
  }
}

TEST(TokenizerSpecTest, RefusesMalformedFiles) {
  const std::vector<Refusal> cases = {
      {"/model", "null", "no model"},
      {"/model", "[]", "model"},
      {"/model/vocab", "{}", "no vocab"},
      {"/model/vocab", R"({"a": "x"})", "vocab"},
      {"/model/vocab", R"({"a": -1})", "vocab"},
      {"/model/vocab", R"({"a": 4294967296})", "vocab"},
      {"/model/vocab", R"({"a": 1e300})", "vocab"},
      {"/model/vocab", R"({"a": 5000000})", "vocab"},
      {"/model/vocab", R"({"a": 0, "b": 0})", "twice"},
      {"/model/merges", "null", "no merges"},
      {"/model/merges", R"(["ab"])", "merge 0"},
      {"/model/merges", R"([["a"]])", "merge 0"},
      {"/model/merges", R"([["a", "zz"]])", "merge 0"},
      {"/model/merges", R"([["b", "a"]])", "merge 0"},
      {"/model/merges", R"([7])", "merge 0"},
      {"/added_tokens", R"([{"id": -4, "content": "x"}])", "added token"},
      {"/added_tokens", R"([{"id": 2000000000, "content": "x"}])", "added token"},
      {"/added_tokens", R"([{"id": 4, "content": ""}])", "added_tokens[0]"},
      {"/added_tokens", R"([{"id": 4, "content": "x"}, {"id": 5, "content": "x"}])", "twice"},
      {"/added_tokens", R"([{"id": 4, "content": 5}])", "content"},
      {"/added_tokens", R"({"a": 1})", "added_tokens"},
      {"/post_processor", R"({"type": "TemplateProcessing", "single": [
        {"SpecialToken": {"id": "</s>"}}, {"Sequence": {"id": "A"}}], "special_tokens": {}})",
       "no single id"},
      {"/post_processor", R"({"type": "TemplateProcessing", "single": [
        {"SpecialToken": {"id": "</s>"}}, {"Sequence": {"id": "A"}}],
        "special_tokens": {"</s>": {"ids": [77]}}})",
       "bos_token"},
  };
  for (const Refusal& refusal : cases) {
    json document = MinimalTokenizer();
    document[json::json_pointer(refusal.pointer)] = json::parse(refusal.value);
    EXPECT_THAT(Load(document), StatusIs(absl::StatusCode::kInvalidArgument, refusal.message))
        << refusal.pointer << " " << refusal.value;
  }
  for (const char* text : {"", "[]", "{", "null", "{\"model\": {\"vocab\": "}) {
    EXPECT_THAT(TokenizerSpecFromHuggingFace(text, ""),
                StatusIs(absl::StatusCode::kInvalidArgument, "tokenizer.json"));
  }
}

TEST(TokenizerSpecTest, TakesBosFromTheConfigOrThePostProcessor) {
  const std::string config = R"({"bos_token": {"content": "</s>"}, "eos_token": "</s>",
                                 "add_bos_token": true})";
  ASSERT_OK_AND_ASSIGN(const auto configured, Load(MinimalTokenizer(), config));
  EXPECT_TRUE(configured->spec().add_bos);
  EXPECT_EQ(configured->spec().bos_token, 3);
  EXPECT_EQ(configured->spec().eos_tokens, std::vector<int32_t>{3});
  json document = MinimalTokenizer();
  document["post_processor"] = json::parse(R"({"type": "Sequence", "processors": [
      {"type": "ByteLevel"}, {"type": "TemplateProcessing", "single": [
      {"SpecialToken": {"id": "</s>"}}, {"Sequence": {"id": "A"}}],
      "special_tokens": {"</s>": {"ids": [3]}}}]})");
  ASSERT_OK_AND_ASSIGN(const auto processed, Load(document));
  EXPECT_TRUE(processed->spec().add_bos);
  EXPECT_EQ(processed->spec().bos_token, 3);
  EXPECT_THAT(Load(MinimalTokenizer(), R"({"eos_token": "<nowhere>"})"),
              StatusIs(absl::StatusCode::kInvalidArgument, "<nowhere>"));
}

TEST(TokenizerSpecTest, NeverMakesASpecialTokenByMerging) {
  json document = MinimalTokenizer();
  document["added_tokens"] = json::parse(R"([{"id": 2, "content": "ab", "special": true}])");
  ASSERT_OK_AND_ASSIGN(const auto tokenizer, Load(document));
  ASSERT_OK_AND_ASSIGN(const std::vector<int32_t> plain, tokenizer->Encode("ab", {}));
  EXPECT_EQ(plain, (std::vector<int32_t>{0, 1}));
  ASSERT_OK_AND_ASSIGN(const std::vector<int32_t> trusted, tokenizer->Encode("ab", {{0, 2}}));
  EXPECT_EQ(trusted, std::vector<int32_t>{2});
}

TEST(TokenizerSpecTest, KeepsTokensThatAreNotUtf8ThroughJson) {
  TokenizerSpec spec;
  for (int byte = 0; byte < 256; ++byte)
    spec.tokens.emplace_back(1, static_cast<char>(byte));
  spec.tokens.emplace_back("\xE2\x82");
  spec.tokens.emplace_back();
  spec.decode_only = {257};
  spec.merges = {{.left = 0xE2, .right = 0x82, .merged = 256}};
  ASSERT_OK_AND_ASSIGN(const TokenizerSpec read, TokenizerSpecFromJson(TokenizerSpecToJson(spec)));
  EXPECT_EQ(read.tokens, spec.tokens);
  EXPECT_EQ(read.decode_only, spec.decode_only);
  EXPECT_EQ(read.merges.size(), 1u);
}

TEST(TokenizerSpecTest, RefusesBrokenPackTexts) {
  const json good = json::parse(TokenizerSpecToJson([] {
    TokenizerSpec spec;
    spec.tokens = {"a", "b", "ab"};
    spec.merges = {{.left = 0, .right = 1, .merged = 2}};
    return spec;
  }()));
  EXPECT_OK(TokenizerSpecFromJson(good.dump()));
  const std::vector<Refusal> cases = {
      {"/format", R"("nightshift-tokenizer/2")", "format"},
      {"/model", R"("unigram")", "unigram"},
      {"/tokens", "[]", "tokens"},
      {"/tokens", R"([" "])", "tokens[0]"},
      {"/tokens", "7", "tokens"},
      {"/merges", "[0, 1]", "triples"},
      {"/merges", "[0, 1, 3]", "merges[0]"},
      {"/merges", "[0, 1, -1]", "merges[0]"},
      {"/bos_token", "3", "bos_token"},
      {"/eos_tokens", "[-1]", "eos_tokens"},
      {"/add_bos", "true", "bos_token"},
      {"/decode_only", "[9]", "decode_only"},
      {"/split_patterns", "[5]", "split_patterns"},
  };
  for (const Refusal& refusal : cases) {
    json document = good;
    document[json::json_pointer(refusal.pointer)] = json::parse(refusal.value);
    EXPECT_THAT(TokenizerSpecFromJson(document.dump()),
                StatusIs(absl::StatusCode::kInvalidArgument, refusal.message));
  }
}

GgufTokenizerMetadata MinimalGguf() {
  return {.model = "gpt2",
          .pre = "gpt-2",
          .tokens = {"a", "b", "ab", "<|end|>"},
          .token_types = {1, 1, 1, 3},
          .merges = {"a b"},
          .bos_token = -1,
          .eos_token = 3,
          .unknown_token = -1,
          .eot_token = -1,
          .add_bos = std::nullopt,
          .add_space_prefix = false};
}

TEST(TokenizerSpecTest, RefusesGgufTokenizersItCannotRun) {
  EXPECT_OK(TokenizerSpecFromGguf(MinimalGguf()));
  const std::vector<std::pair<std::function<void(GgufTokenizerMetadata&)>, const char*>> cases = {
      {[](auto& m) { m.model = "llama"; }, "\"llama\""},
      {[](auto& m) { m.pre = "tekken"; }, "\"tekken\""},
      {[](auto& m) { m.pre = ""; }, "tokenizer.ggml.pre"},
      {[](auto& m) { m.tokens.clear(), m.token_types.clear(), m.merges.clear(); }, "tokens"},
      {[](auto& m) { m.token_types.pop_back(); }, "token types"},
      {[](auto& m) { m.token_types[0] = 9; }, "type 9"},
      {[](auto& m) { m.merges = {"ab"}; }, "merge 0"},
      {[](auto& m) { m.merges = {"b a"}; }, "merge 0"},
      {[](auto& m) { m.eos_token = 4; }, "eos_tokens"},
      {[](auto& m) { m.add_bos = true; }, "bos_token"},
      {[](auto& m) { m.tokens[3] = "\xFF"; }, "UTF-8"},
  };
  for (const auto& [spoil, message] : cases) {
    GgufTokenizerMetadata metadata = MinimalGguf();
    spoil(metadata);
    EXPECT_THAT(TokenizerSpecFromGguf(metadata),
                StatusIs(absl::StatusCode::kInvalidArgument, message));
  }
}

}  // namespace
}  // namespace nightshift
