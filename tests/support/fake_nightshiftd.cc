// fake_nightshiftd: the daemon with an engine whose output is a pure function of prompt and seed,
// for tests of scale and of crashes. Takes nightshiftd's options; without a model it serves "fake",
// a tiny pack with one token a byte, which it makes in the state directory.
#include <cstdio>
#include <filesystem>
#include <string>

#include "absl/strings/str_cat.h"

#include "engine/process/engine_process.h"
#include "engine/process/serve_engine.h"
#include "server/daemon.h"
#include "server/options.h"
#include "tests/support/fake_engine.h"
#include "tests/support/tiny_packs.h"

namespace nightshift {
namespace {

constexpr size_t kVocabulary = 331;  // of tests/data/tiny/llama
constexpr size_t kFirstByte = 16;    // above the fake engine's magic tokens

// Special tokens, then one token for each byte, so that any text can be a prompt.
TokenizerSpec BytesTokenizer() {
  TokenizerSpec spec;
  for (size_t id = 0; id < kVocabulary; ++id) {
    const bool is_byte = id >= kFirstByte && id < kFirstByte + 256;
    spec.tokens.push_back(is_byte ? std::string(1, static_cast<char>(id - kFirstByte))
                                  : absl::StrCat("<", id, ">"));
    if (!is_byte) {
      AddedToken token;
      token.id = static_cast<int32_t>(id);
      token.text = spec.tokens.back();
      token.special = true;
      spec.added_tokens.push_back(token);
    }
  }
  return spec;
}

absl::Status AddFakePack(Options& options) {
  if (!options.models.empty() || !options.models_directory.empty()) {
    return absl::OkStatus();
  }
  const std::string pack = options.state_directory + "/fake";
  std::error_code error;
  std::filesystem::create_directories(options.state_directory, error);
  if (!std::filesystem::exists(pack, error)) {
    const TokenizerSpec tokenizer = BytesTokenizer();
    RETURN_IF_ERROR(ImportForTest(std::string(TEST_DATA_DIR) + "/tiny/llama", pack, &tokenizer));
  }
  options.models.push_back(pack);
  return absl::OkStatus();
}

int Run(int argc, const char* const* argv) {
  auto line = ReadCommandLine(argc, argv);
  absl::Status status = line.status();
  if (status.ok()) {
    status = AddFakePack(line->options);
  }
  if (!status.ok()) {
    std::fprintf(stderr, "fake_nightshiftd: %s\n", status.ToString().c_str());
    return static_cast<int>(ExitCode::kConfig);
  }
  return static_cast<int>(RunDaemon(*line, EngineProcess::Create));
}

int RunFakeEngine() {
  return RunEngineProcess([](const EngineOptions& options) {
    return FakeEngine::Create(options, FakeEngineOptions(), nullptr);
  });
}

}  // namespace
}  // namespace nightshift

int main(int argc, char** argv) {
  nightshift::PrepareProcess();
  return nightshift::IsEngineProcess(argc, argv) ? nightshift::RunFakeEngine()
                                                 : nightshift::Run(argc, argv);
}
