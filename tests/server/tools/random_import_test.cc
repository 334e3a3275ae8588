#include "server/tools/random_import.h"

#include <filesystem>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "engine/engine.h"
#include "engine/text/tokenizer_spec.h"
#include "tests/support/engine_runs.h"
#include "tests/support/file_bytes.h"
#include "tests/support/status_matchers.h"
#include "tests/support/temporary_folder.h"

namespace nightshift {
namespace {

namespace fs = std::filesystem;
using ::testing::Contains;
using ::testing::HasSubstr;

constexpr char kData[] = TEST_DATA_DIR;
constexpr absl::StatusCode kInvalid = absl::StatusCode::kInvalidArgument;

class RandomImportTest : public ::testing::Test {
 protected:
  RandomImportOptions Options() const { return {.shape = "tiny", .output = output()}; }
  std::string output() const { return folder_.path() + "/pack"; }
  // A Hugging Face folder with nothing but a tokenizer and a template.
  std::string TextsFolder() {
    const std::string path = folder_.path() + "/texts";
    fs::create_directory(path);
    fs::copy(std::string(kData) + "/tokenizers/gpt2/tokenizer.json", path);
    WriteFileBytes(path + "/chat_template.jinja", "{{ messages[0]['content'] }}");
    return path;
  }

  TemporaryFolder folder_;
};

TEST_F(RandomImportTest, ThePackRunsOnTokenIds) {
  ASSERT_OK_AND_ASSIGN(const ImportSummary summary, ImportRandom(Options()));
  EXPECT_THAT(summary.notes, Contains(HasSubstr("token ids only")));
  EngineOptions options;
  options.pack_path = output();
  options.memory_budget_bytes = 64 << 20;
  ASSERT_OK_AND_ASSIGN(const auto engine, Engine::Create(options));
  EngineRequest request;
  request.id = 1;
  request.prompt = {1, 2, 3};
  request.sampling.max_output_tokens = 5;
  ASSERT_OK(engine->Admit({request})[0].status);
  int64_t sampled = 0;
  while (engine->num_held() > 0) {
    ASSERT_OK_AND_ASSIGN(const SweepResult result, engine->Sweep());  // refuses infinite logits
    sampled += result.output_tokens;
  }
  EXPECT_EQ(sampled, 5);
}

TEST_F(RandomImportTest, TakesTokenizerAndTemplateOfAFolder) {
  RandomImportOptions options = Options();
  options.tokenizer = TextsFolder();
  ASSERT_OK(ImportRandom(options));
  ASSERT_OK_AND_ASSIGN(const auto pack, Pack::Open(output()));
  ASSERT_OK_AND_ASSIGN(const std::string json, pack->ReadTokenizerJson());
  EXPECT_OK(TokenizerSpecFromJson(json));
  ASSERT_OK_AND_ASSIGN(const std::string chat_template, pack->ReadChatTemplate());
  EXPECT_EQ(chat_template, "{{ messages[0]['content'] }}");
}

TEST_F(RandomImportTest, TakesTokenizerAndTemplateOfAPack) {
  RandomImportOptions options = Options();
  options.tokenizer = TextsFolder();
  ASSERT_OK(ImportRandom(options));
  options.tokenizer = output();
  options.output = folder_.path() + "/second";
  ASSERT_OK(ImportRandom(options));
  ASSERT_OK_AND_ASSIGN(const auto first, Pack::Open(output()));
  ASSERT_OK_AND_ASSIGN(const auto second, Pack::Open(options.output));
  EXPECT_EQ(first->manifest().digest, second->manifest().digest);
}

TEST_F(RandomImportTest, RefusesTokenizersThatAreNotThere) {
  RandomImportOptions options = Options();
  options.tokenizer = folder_.path();
  EXPECT_THAT(ImportRandom(options),
              StatusIs(absl::StatusCode::kNotFound, "--tokenizer: " + folder_.path()));
  WriteFileBytes(TextsFolder() + "/tokenizer.json", "{}");
  options.tokenizer = folder_.path() + "/texts";
  EXPECT_THAT(ImportRandom(options), StatusIs(kInvalid, "--tokenizer"));
  EXPECT_FALSE(fs::exists(output()));
}

TEST_F(RandomImportTest, RefusesAnUnknownShapeWithTheList) {
  RandomImportOptions options = Options();
  options.shape = "opt-7b";
  EXPECT_THAT(ImportRandom(options), StatusIs(kInvalid, "opt-6.7b"));
}

}  // namespace
}  // namespace nightshift
