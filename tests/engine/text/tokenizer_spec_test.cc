// Tokenizer files that nobody vouches for: what they ask and we do not have is refused by name.
#include "engine/text/tokenizer_spec.h"

#include <cmath>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "absl/strings/str_format.h"

#include "engine/text/tokenizer.h"
#include "tests/engine/text/golden_files.h"
#include "tests/support/status_matchers.h"

namespace nightshift {
namespace {

using nlohmann::json;

// SentencePiece style: characters, and a decoder that puts spaces back.
json MinimalCharacters() {
  return json::parse(R"({
    "added_tokens": [{"id": 0, "content": "<unk>", "special": true}],
    "normalizer": {"type": "Replace", "pattern": {"String": " "}, "content": "_"},
    "decoder": {"type": "Replace", "pattern": {"String": "_"}, "content": " "},
    "model": {"type": "BPE", "unk_token": "<unk>", "vocab": {"<unk>": 0, "_": 1, "a": 2, "_a": 3},
              "merges": [["_", "a"]]}
  })");
}

json MinimalUnigram() {
  json document = MinimalCharacters();
  document["model"] = json::parse(R"({"type": "Unigram", "unk_id": 0, "vocab": [
      ["<unk>", 0.0], ["_", -2.0], ["a", -2.0], ["_a", -3.0]]})");
  return document;
}

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
      {"/model/type", R"("WordPiece")", "model WordPiece"},
      {"/model/byte_fallback", "true", "byte_fallback"},
      {"/model/dropout", "0.1", "dropout"},
      {"/model/end_of_word_suffix", R"("</w>")", "end_of_word_suffix"},
      {"/model/continuing_subword_prefix", R"("##")", "continuing_subword_prefix"},
      {"/normalizer", R"({"type": "Nmt"})", "normalizer Nmt"},
      {"/normalizer", R"({"type": "Precompiled", "precompiled_charsmap": ""})",
       "normalizer Precompiled"},
      {"/normalizer", R"({"type": "Sequence", "normalizers": [{"type": "StripAccents"}]})",
       "normalizer StripAccents"},
      {"/normalizer", R"({"type": "Replace", "content": "x"})", "Replace without a pattern"},
      {"/normalizer", R"({"type": "Replace", "pattern": {"String": ""}})", "empty pattern"},
      {"/normalizer", R"({"type": "Replace", "pattern": {"Regex": "^a"}, "content": ""})",
       "^ at offset 0"},
      {"/pre_tokenizer", R"({"type": "Whitespace"})", "pre-tokenizer Whitespace"},
      {"/pre_tokenizer", R"({"type": "Metaspace", "prepend_scheme": "last"})", "\"last\""},
      {"/pre_tokenizer", R"({"type": "Metaspace", "add_prefix_space": false})",
       "add_prefix_space false"},
      {"/pre_tokenizer", R"({"type": "Metaspace"})", "decoder ByteLevel"},
      {"/pre_tokenizer", "null", "decoder ByteLevel"},
      {"/pre_tokenizer", SplitBy("a", "Dropped"), "\"Dropped\""},
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
      {"/decoder", R"({"type": "Metaspace"})", "decoder Metaspace"},
      {"/decoder", "null", "no decoder"},
  };
  for (const Refusal& refusal : cases) {
    json document = MinimalTokenizer();
    document[json::json_pointer(refusal.pointer)] = json::parse(refusal.value);
    EXPECT_THAT(Load(document), StatusIs(absl::StatusCode::kInvalidArgument, refusal.message))
        << refusal.pointer << " " << refusal.value;
  }
}

TEST(TokenizerSpecTest, RefusesByNameWhatItDoesNotHaveForCharacters) {
  const std::vector<Refusal> cases = {
      {"/decoder", R"({"type": "ByteLevel"})", "decoder ByteLevel"},
      {"/decoder", R"({"type": "Strip", "content": " ", "start": 1, "stop": 0})", "decoder Strip"},
      {"/decoder", R"({"type": "Sequence", "decoders": [{"type": "Fuse"},
        {"type": "Strip", "content": " ", "start": 0, "stop": 1}]})",
       "Strip at the end"},
      {"/decoder", R"({"type": "Sequence", "decoders": [{"type": "ByteFallback"},
        {"type": "Metaspace"}]})",
       "decoder Metaspace"},
      {"/decoder", R"({"type": "Replace", "pattern": {"Regex": "_"}, "content": " "})",
       "by a Regex"},
      {"/decoder", "null", "no decoder"},
      {"/model/unk_token", R"("<none>")", "<none>"},
  };
  for (const Refusal& refusal : cases) {
    json document = MinimalCharacters();
    document[json::json_pointer(refusal.pointer)] = json::parse(refusal.value);
    EXPECT_THAT(Load(document), StatusIs(absl::StatusCode::kInvalidArgument, refusal.message))
        << refusal.pointer << " " << refusal.value;
  }
  json some_bytes = MinimalCharacters();
  some_bytes["model"]["byte_fallback"] = true;
  EXPECT_OK(Load(some_bytes));
  some_bytes["model"]["vocab"]["<0x41>"] = 4;
  EXPECT_THAT(Load(some_bytes), StatusIs(absl::StatusCode::kInvalidArgument, "the byte 0x00"));
}

TEST(TokenizerSpecTest, RefusesMalformedUnigramVocabularies) {
  const std::vector<Refusal> cases = {
      {"/model/vocab", "{}", "vocab"},
      {"/model/vocab", "[]", "no vocab"},
      {"/model/vocab", R"([["a"]])", "vocab 0"},
      {"/model/vocab", R"([["a", "b"]])", "vocab 0"},
      {"/model/vocab", R"([[1, 2]])", "vocab 0"},
      {"/model/unk_id", "4", "unk_id 4"},
      {"/model/unk_id", "null", "unk_id -1"},
      {"/pre_tokenizer", R"({"type": "ByteLevel"})", "Unigram with pre-tokenizer ByteLevel"},
  };
  EXPECT_OK(Load(MinimalUnigram()));
  for (const Refusal& refusal : cases) {
    json document = MinimalUnigram();
    document[json::json_pointer(refusal.pointer)] = json::parse(refusal.value);
    EXPECT_THAT(Load(document), StatusIs(absl::StatusCode::kInvalidArgument, refusal.message))
        << refusal.pointer << " " << refusal.value;
  }
  json long_token = MinimalUnigram();
  long_token["model"]["vocab"][1][0] = std::string(1025, 'a');
  EXPECT_THAT(Load(long_token), StatusIs(absl::StatusCode::kInvalidArgument, "1025 bytes"));
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
      {"/format", R"("nightshift-tokenizer/3")", "format"},
      {"/model", R"("wordpiece")", "wordpiece"},
      {"/model", R"("unigram")", "scores"},
      {"/model", R"("scored_bpe")", "scores"},
      {"/scores", R"(["x"])", "scores[0]"},
      {"/scores", "[1.5]", "scores"},
      {"/byte_fallback", "true", "byte_fallback"},
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
      {"/normalizer", R"([{"kind": "nfx"}])", "nfx"},
      {"/normalizer", "[5]", "normalizer[0]"},
      {"/normalizer", R"([{"kind": "replace", "from": ""}])", "normalizer[0].from"},
      {"/pre_tokenizer", R"([{"kind": "metaspace"}])", "pre_tokenizer[0].pattern"},
      {"/pre_tokenizer", R"([{"kind": "split", "behavior": "odd"}])", "odd"},
      {"/decoder", R"({"strip_count": -1})", "strip_count"},
  };
  for (const Refusal& refusal : cases) {
    json document = good;
    document[json::json_pointer(refusal.pointer)] = json::parse(refusal.value);
    EXPECT_THAT(TokenizerSpecFromJson(document.dump()),
                StatusIs(absl::StatusCode::kInvalidArgument, refusal.message));
  }
}

TEST(TokenizerSpecTest, ReadsPacksWrittenBeforeThereWereSteps) {
  const json old = {{"format", "nightshift-tokenizer/1"},
                    {"model", "byte_bpe"},
                    {"tokens", {"a", "Ġ", "1", "é"}},
                    {"add_prefix_space", true},
                    {"normalize_nfc", true},
                    {"split_patterns", {"\\p{N}"}}};
  ASSERT_OK_AND_ASSIGN(const TokenizerSpec spec, TokenizerSpecFromJson(old.dump()));
  ASSERT_EQ(spec.normalizer.size(), 1u);
  EXPECT_EQ(spec.normalizer[0].kind, NormalizerStep::Kind::kNfc);
  ASSERT_EQ(spec.pre_tokenizer.size(), 2u);
  EXPECT_EQ(spec.pre_tokenizer[0].kind, PreTokenizerStep::Kind::kPrefix);
  EXPECT_EQ(spec.pre_tokenizer[1].pattern, "\\p{N}");
  ASSERT_OK_AND_ASSIGN(const auto tokenizer, Tokenizer::Create(spec));
  ASSERT_OK_AND_ASSIGN(const std::vector<int32_t> ids, tokenizer->Encode("a1", {}));
  EXPECT_EQ(ids, (std::vector<int32_t>{1, 0, 2}));
  json broken = old;
  broken["split_patterns"] = {5};
  EXPECT_THAT(TokenizerSpecFromJson(broken.dump()),
              StatusIs(absl::StatusCode::kInvalidArgument, "split_patterns[0]"));
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
          .eot_token = -1};
}

TEST(TokenizerSpecTest, RefusesGgufTokenizersItCannotRun) {
  EXPECT_OK(TokenizerSpecFromGguf(MinimalGguf()));
  const std::vector<std::pair<std::function<void(GgufTokenizerMetadata&)>, const char*>> cases = {
      {[](auto& m) { m.model = "rwkv"; }, "\"rwkv\""},
      {[](auto& m) { m.pre = "bloom"; }, "\"bloom\""},
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

TEST(TokenizerSpecTest, RunsEachPreTokenizerOfGguf) {
  for (const char* pre : {"gpt-2", "phi-2", "mpt", "olmo", "smollm", "starcoder", "refact",
                          "llama-bpe", "llama3", "llama-v3", "dbrx", "qwen2", "deepseek-r1-qwen",
                          "stablelm2", "tekken", "gpt-4o", "llama4", "deepseek-v3", "falcon"}) {
    GgufTokenizerMetadata metadata = MinimalGguf();
    metadata.pre = pre;
    ASSERT_OK_AND_ASSIGN(TokenizerSpec spec, TokenizerSpecFromGguf(metadata));
    ASSERT_OK_AND_ASSIGN(const auto tokenizer, Tokenizer::Create(std::move(spec)));
    ASSERT_OK_AND_ASSIGN(const std::vector<int32_t> ids, tokenizer->Encode("ab, 123 a", {}));
    EXPECT_EQ(ids, (std::vector<int32_t>{2, 0})) << pre;
  }
}

GgufTokenizerMetadata MinimalPieces(const std::string& model) {
  GgufTokenizerMetadata metadata;
  metadata.model = model;
  metadata.tokens = {"<unk>", "\xE2\x96\x81", "a",
                     "\xE2\x96\x81"
                     "a"};
  metadata.scores = {0, -3, -2, -1};
  metadata.token_types = {2, 1, 1, 1};
  metadata.unknown_token = 0;
  for (int byte = 0; byte < 256; ++byte) {
    metadata.tokens.push_back(absl::StrFormat("<0x%02X>", byte));
    metadata.scores.push_back(0);
    metadata.token_types.push_back(6);
  }
  return metadata;
}

TEST(TokenizerSpecTest, LoadsSentencePieceModelsFromGguf) {
  for (const char* model : {"llama", "t5"}) {
    ASSERT_OK_AND_ASSIGN(TokenizerSpec spec, TokenizerSpecFromGguf(MinimalPieces(model)));
    ASSERT_OK_AND_ASSIGN(spec, TokenizerSpecFromJson(TokenizerSpecToJson(spec)));
    ASSERT_OK_AND_ASSIGN(const auto tokenizer, Tokenizer::Create(std::move(spec)));
    ASSERT_OK_AND_ASSIGN(const std::vector<int32_t> ids, tokenizer->Encode("a aé", {}));
    EXPECT_EQ(ids, (std::vector<int32_t>{3, 3, 4 + 0xC3, 4 + 0xA9})) << model;
    EXPECT_EQ(tokenizer->Decode(ids, true), "a aé");
  }
}

TEST(TokenizerSpecTest, StripsBehindTheAddedTokensOfPhi3) {
  GgufTokenizerMetadata metadata = MinimalPieces("llama");
  metadata.tokens.emplace_back("<|end|>");
  metadata.scores.push_back(0);
  metadata.token_types.push_back(3);
  const auto end = static_cast<int32_t>(metadata.tokens.size()) - 1;
  for (const bool is_phi3 : {false, true}) {
    metadata.architecture = is_phi3 ? "phi3" : "llama";
    ASSERT_OK_AND_ASSIGN(TokenizerSpec spec, TokenizerSpecFromGguf(metadata));
    ASSERT_OK_AND_ASSIGN(const auto tokenizer, Tokenizer::Create(std::move(spec)));
    ASSERT_OK_AND_ASSIGN(const std::vector<int32_t> ids, tokenizer->Encode("<|end|>\n", {{0, 8}}));
    EXPECT_EQ(ids, is_phi3 ? std::vector<int32_t>{end} : (std::vector<int32_t>{end, 1, 4 + 0x0A}));
  }
}

TEST(TokenizerSpecTest, RefusesSentencePieceModelsFromGgufThatItCannotRun) {
  const std::vector<std::pair<std::function<void(GgufTokenizerMetadata&)>, const char*>> cases = {
      {[](auto& m) { m.scores.pop_back(); }, "scores"},
      {[](auto& m) { m.scores.assign(m.scores.size(), -1000); }, "all scores are -1000"},
      {[](auto& m) { m.scores[0] = NAN; }, "scores[0]"},
      {[](auto& m) { m.tokens[4] = "x"; }, "the byte 0x00"},
      {[](auto& m) { m.tokens[2] = "\xFF"; }, "UTF-8"},
      {[](auto& m) { m.model = "t5", m.has_precompiled_charsmap = true; }, "precompiled_charsmap"},
      {[](auto& m) { m.model = "t5", m.unknown_token = -1; }, "unknown_token_id"},
  };
  for (const auto& [spoil, message] : cases) {
    GgufTokenizerMetadata metadata = MinimalPieces("llama");
    spoil(metadata);
    EXPECT_THAT(TokenizerSpecFromGguf(metadata),
                StatusIs(absl::StatusCode::kInvalidArgument, message));
  }
}

}  // namespace
}  // namespace nightshift
