#include "server/tools/import.h"

#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <string>
#include <vector>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include "engine/text/tokenizer_spec.h"
#include "tests/support/file_bytes.h"
#include "tests/support/golden.h"
#include "tests/support/status_matchers.h"
#include "tests/support/temporary_folder.h"
#include "tests/support/tiny_gguf.h"

namespace nightshift {
namespace {

namespace fs = std::filesystem;

constexpr absl::StatusCode kInvalid = absl::StatusCode::kInvalidArgument;
constexpr char kData[] = TEST_DATA_DIR;

class ImportTest : public ::testing::Test {
 protected:
  // A folder as a user would have it: the tiny llama, with or without a tokenizer.
  void MakeFolder(bool with_tokenizer) {
    fs::copy(std::string(kData) + "/tiny/llama", source());
    if (with_tokenizer) {
      fs::copy(std::string(kData) + "/tokenizers/gpt2/tokenizer.json", source());
    }
  }
  void Write(const std::string& name, const std::string& text) {
    WriteFileBytes(source() + "/" + name, text);
  }
  absl::StatusOr<ImportSummary> Import() { return ImportModel(Options()); }
  ImportOptions Options() const { return {.source = source(), .output = output()}; }
  std::string source() const { return folder_.path() + "/source"; }
  std::string output() const { return folder_.path() + "/pack"; }
  std::string ImportedTemplate() {
    const auto pack = Pack::Open(output());
    EXPECT_OK(pack);
    const auto text = (*pack)->ReadChatTemplate();
    EXPECT_OK(text);
    return text.value_or("");
  }

  TemporaryFolder folder_;
};

TEST_F(ImportTest, TakesAChatTemplateThatTheCallerGives) {
  MakeFolder(true);
  Write("chat_template.jinja", "{{ 'own' }}");
  const std::string given = folder_.path() + "/given.jinja";
  WriteFileBytes(given, "{{ 'given' }}");
  ImportOptions options = Options();
  options.chat_template_file = given;
  ASSERT_OK(ImportModel(options));
  EXPECT_EQ(ImportedTemplate(), "{{ 'given' }}");
}

TEST_F(ImportTest, RefusesAGivenChatTemplateThatCannotBeUsed) {
  MakeFolder(true);
  ImportOptions options = Options();
  options.chat_template_file = folder_.path() + "/none.jinja";
  EXPECT_THAT(ImportModel(options), StatusIs(absl::StatusCode::kNotFound, "none.jinja"));
  WriteFileBytes(options.chat_template_file, "{% include 'x' %}");
  EXPECT_THAT(ImportModel(options), StatusIs(kInvalid, "statement include is not supported"));
  options.without_tokenizer = true;
  EXPECT_THAT(ImportModel(options), StatusIs(kInvalid, "no tokenizer"));
}

TEST_F(ImportTest, FolderWithoutTokenizerMakesAPackForTokenIds) {
  MakeFolder(false);
  ASSERT_OK_AND_ASSIGN(const ImportSummary summary, Import());
  EXPECT_FALSE(summary.manifest.has_tokenizer);
  EXPECT_EQ(summary.manifest.model_name, "source");
  EXPECT_THAT(summary.notes, ::testing::ElementsAre(::testing::HasSubstr("token ids only")));
  ASSERT_OK_AND_ASSIGN(const auto pack, Pack::Open(output()));
  EXPECT_THAT(pack->ReadTokenizerJson(), StatusIs(absl::StatusCode::kNotFound, "tokenizer.json"));
}

TEST_F(ImportTest, TokenizerIsKeptAsOurSpec) {
  MakeFolder(true);
  ASSERT_OK(Import());
  ASSERT_OK_AND_ASSIGN(const auto pack, Pack::Open(output()));
  ASSERT_OK_AND_ASSIGN(const std::string json, pack->ReadTokenizerJson());
  ASSERT_OK_AND_ASSIGN(const TokenizerSpec spec, TokenizerSpecFromJson(json));
  EXPECT_FALSE(spec.merges.empty());
}

TEST_F(ImportTest, AFileOfLlamaCppsConverterImportsWithItsTokenizer) {
  for (const char* name : {"qwen3", "gemma2", "falcon"}) {
    const std::string target = folder_.path() + "/" + name;
    ASSERT_OK(
        ImportModel({.source = std::string(kData) + "/gguf/" + name + ".gguf", .output = target}));
    ASSERT_OK_AND_ASSIGN(const auto pack, Pack::Open(target));
    ASSERT_OK_AND_ASSIGN(const std::string json, pack->ReadTokenizerJson());
    ASSERT_OK_AND_ASSIGN(const TokenizerSpec spec, TokenizerSpecFromJson(json));
    EXPECT_EQ(static_cast<int64_t>(spec.tokens.size()), pack->manifest().config.vocabulary);
    EXPECT_EQ(pack->manifest().config.eos_tokens, std::vector<int32_t>{2});
  }
}

// A folder as published: the text model's tensors have one more prefix.
TEST_F(ImportTest, TheTextModelOfAFolderThatTakesImagesIsImported) {
  fs::copy(std::string(kData) + "/tiny/gemma3", source());
  const nlohmann::json text = nlohmann::json::parse(ReadWholeFile(source() + "/config.json"));
  Write("config.json", nlohmann::json{{"architectures", {"Gemma3ForConditionalGeneration"}},
                                      {"eos_token_id", 2},
                                      {"text_config", text},
                                      {"vision_config", nlohmann::json::object()}}
                           .dump());
  std::string bytes = ReadWholeFile(source() + "/model.safetensors");
  uint64_t header_bytes = 0;
  std::memcpy(&header_bytes, bytes.data(), sizeof(header_bytes));
  nlohmann::json header = nlohmann::json::object();
  const nlohmann::json before = nlohmann::json::parse(bytes.substr(8, header_bytes));
  for (const auto& [name, entry] : before.items()) {
    header[name == "__metadata__" ? name : "language_model." + name] = entry;
  }
  std::string renamed;
  AppendNumber(renamed, static_cast<uint64_t>(header.dump().size()));
  Write("model.safetensors", renamed + header.dump() + bytes.substr(8 + header_bytes));
  ASSERT_OK_AND_ASSIGN(const ImportSummary summary, Import());
  EXPECT_EQ(summary.manifest.config.family, "gemma3");
  EXPECT_THAT(summary.notes, ::testing::Contains(::testing::HasSubstr("image encoder")));
}

TEST_F(ImportTest, SourcesAreNamedWithTheirDigests) {
  MakeFolder(true);
  Write("tokenizer_config.json", R"({"chat_template":"{{ messages[0]['content'] }}"})");
  ASSERT_OK_AND_ASSIGN(const ImportSummary summary, Import());
  std::vector<std::string> names;
  for (const FileDigest& source : summary.manifest.sources) {
    names.push_back(source.name);
    EXPECT_EQ(source.bytes,
              static_cast<int64_t>(fs::file_size(this->source() + "/" + source.name)));
  }
  EXPECT_THAT(names,
              ::testing::UnorderedElementsAre("config.json", "model-00001-of-00002.safetensors",
                                              "model-00002-of-00002.safetensors", "tokenizer.json",
                                              "tokenizer_config.json"));
}

TEST_F(ImportTest, TemplateFileWinsOverTokenizerConfig) {
  MakeFolder(true);
  Write("tokenizer_config.json", R"({"chat_template":"{{ 'config' }}"})");
  Write("chat_template.jinja", "{{ 'file' }}");
  ASSERT_OK(Import());
  EXPECT_EQ(ImportedTemplate(), "{{ 'file' }}");
}

TEST_F(ImportTest, TemplateOfAJsonFileIsFound) {
  MakeFolder(true);
  Write("chat_template.json", R"({"chat_template":"{{ 'json' }}"})");
  ASSERT_OK(Import());
  EXPECT_EQ(ImportedTemplate(), "{{ 'json' }}");
}

TEST_F(ImportTest, DefaultOfSeveralTemplatesIsTaken) {
  MakeFolder(true);
  Write("tokenizer_config.json",
        R"({"chat_template":[{"name":"tool_use","template":"{{ 'tools' }}"},)"
        R"({"name":"default","template":"{{ 'usual' }}"}]})");
  ASSERT_OK(Import());
  EXPECT_EQ(ImportedTemplate(), "{{ 'usual' }}");
}

TEST_F(ImportTest, TemplatesWithoutADefaultAreRefused) {
  MakeFolder(true);
  Write("tokenizer_config.json",
        R"({"chat_template":[{"name":"a","template":"x"},{"name":"b","template":"y"}]})");
  EXPECT_THAT(Import(), StatusIs(kInvalid, "a list with one named default"));
}

TEST_F(ImportTest, TemplateThatCannotRunIsRefusedUnlessLeftOut) {
  MakeFolder(true);
  Write("chat_template.jinja", "{% include 'secrets' %}");
  EXPECT_THAT(Import(), StatusIs(kInvalid, "--without-template"));
  EXPECT_FALSE(fs::exists(output()));
  ImportOptions options = Options();
  options.without_template = true;
  ASSERT_OK_AND_ASSIGN(const ImportSummary summary, ImportModel(options));
  EXPECT_TRUE(summary.manifest.has_tokenizer);
  EXPECT_FALSE(summary.manifest.has_chat_template);
}

TEST_F(ImportTest, TokenizerThatCannotRunIsRefusedUnlessLeftOut) {
  MakeFolder(false);
  Write("tokenizer.json", R"({"model":{"type":"WordPiece","vocab":{}}})");
  EXPECT_THAT(Import(), StatusIs(kInvalid, "--without-tokenizer"));
  ImportOptions options = Options();
  options.without_tokenizer = true;
  ASSERT_OK_AND_ASSIGN(const ImportSummary summary, ImportModel(options));
  EXPECT_FALSE(summary.manifest.has_tokenizer);
}

TEST_F(ImportTest, UnsupportedArchitectureListsTheSupportedOnes) {
  MakeFolder(false);
  Write("config.json", R"({"architectures":["MambaForCausalLM"],"model_type":"mamba"})");
  EXPECT_THAT(Import(),
              StatusIs(kInvalid, "supported: LlamaForCausalLM (llama), MistralForCausalLM"));
}

TEST_F(ImportTest, APackIsNoSource) {
  MakeFolder(false);
  ASSERT_OK(Import());
  ImportOptions options = Options();
  options.source = options.output;
  options.output += "-again";
  EXPECT_THAT(ImportModel(options), StatusIs(kInvalid, "is a pack already"));
}

TEST_F(ImportTest, MissingSourceIsNotFound) {
  EXPECT_THAT(Import(), StatusIs(absl::StatusCode::kNotFound, "/source"));
}

TEST_F(ImportTest, NothingIsLeftWhenTheSourceBreaksHalfWay) {
  MakeFolder(false);
  // The header is right, the file behind it shorter: cut while the import runs.
  ImportOptions options = Options();
  options.progress = [this](int64_t) {
    fs::resize_file(source() + "/model-00001-of-00002.safetensors", 4096);
  };
  EXPECT_THAT(ImportModel(options), StatusIs(absl::StatusCode::kDataLoss, "the file ends"));
  EXPECT_EQ(std::distance(fs::directory_iterator(folder_.path()), fs::directory_iterator()), 1);
}

// The child is killed at a tensor, for each tensor: what it leaves is no pack, and the next
// import removes it.
TEST_F(ImportTest, KilledAnywhereItLeavesNothingThatLooksLikeAPack) {
  MakeFolder(false);
  for (int kill_at = 1; kill_at <= 30; kill_at += 5) {
    const pid_t child = fork();
    if (child == 0) {
      int calls = 0;
      ImportOptions options = Options();
      options.progress = [&calls, kill_at](int64_t) {
        if (++calls == kill_at) {
          kill(getpid(), SIGKILL);
        }
      };
      std::_Exit(ImportModel(options).ok() ? 0 : 1);
    }
    int state = 0;
    ASSERT_EQ(waitpid(child, &state, 0), child);
    ASSERT_TRUE(WIFSIGNALED(state)) << kill_at;
    EXPECT_FALSE(fs::exists(output()));
    for (const auto& entry : fs::directory_iterator(folder_.path())) {
      EXPECT_FALSE(Pack::Open(entry.path()).ok()) << entry.path();
      EXPECT_FALSE(fs::exists(entry.path() / "manifest.json")) << entry.path();
    }
  }
  ASSERT_OK(Import());
  EXPECT_EQ(std::distance(fs::directory_iterator(folder_.path()), fs::directory_iterator()), 2);
}

TEST_F(ImportTest, GgufBringsTokenizerAndTemplate) {
  TinyGguf gguf;
  gguf.writer.Text("tokenizer.ggml.model", "gpt2");
  gguf.writer.Text("tokenizer.ggml.pre", "smollm");
  gguf.writer.Texts("tokenizer.ggml.tokens", {"<s>", "a", "b", "ab"});
  gguf.writer.Integers("tokenizer.ggml.token_type", {3, 1, 1, 1});
  gguf.writer.Texts("tokenizer.ggml.merges", {"a b"});
  gguf.writer.Integer("tokenizer.ggml.bos_token_id", 0);
  gguf.writer.Integer("tokenizer.ggml.eos_token_id", 0);
  gguf.writer.Text("tokenizer.chat_template", "{{ messages[0]['content'] }}");
  gguf.AddTensors();
  WriteFileBytes(folder_.path() + "/tiny.Q4_1.gguf", gguf.writer.bytes());
  ASSERT_OK_AND_ASSIGN(
      const ImportSummary summary,
      ImportModel({.source = folder_.path() + "/tiny.Q4_1.gguf", .output = output()}));
  EXPECT_EQ(summary.manifest.model_name, "tiny.Q4_1");
  EXPECT_EQ(summary.manifest.source_format, "gguf");
  EXPECT_TRUE(summary.manifest.has_tokenizer);
  EXPECT_EQ(ImportedTemplate(), "{{ messages[0]['content'] }}");
}

TEST_F(ImportTest, GgufTokenizerOfAnotherKindIsRefusedByName) {
  TinyGguf gguf;
  gguf.writer.Text("tokenizer.ggml.model", "rwkv");
  gguf.writer.Texts("tokenizer.ggml.tokens", {"a"});
  gguf.AddTensors();
  WriteFileBytes(source(), gguf.writer.bytes());
  EXPECT_THAT(Import(), StatusIs(kInvalid, "rwkv"));
}

}  // namespace
}  // namespace nightshift
