// A tokenizer behind a pipe, for tests/bench/tokenizer: reads one JSON command a line from standard
// input and answers each with one JSON line.
//   usage: tokenizer_pipe TOKENIZER_JSON|MODEL_GGUF
//   {"texts": [text...]}    keeps the texts             -> {"bytes": n}
//   {"encode": true}        encodes all of them         -> {"seconds": s, "tokens": n}
//   {"ids": true}           tells what they become      -> {"ids": [[id...]...]}
//   {"decode": [[id...]...], "skip_special": bool}      -> {"texts": [...], "streamed": [...]}
// "streamed" is what TextAccumulator collects, which skips special tokens.
#include <chrono>
#include <fstream>
#include <iostream>
#include <iterator>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>

#include "absl/status/statusor.h"
#include "absl/strings/match.h"

#include "engine/model/checkpoint.h"
#include "engine/text/tokenizer.h"
#include "kernels/base/status_macros.h"
#include "server/tools/source_texts.h"

namespace nightshift {
namespace {

using nlohmann::json;
using Ids = std::vector<int32_t>;

absl::StatusOr<std::unique_ptr<Tokenizer>> Open(const std::string& path) {
  if (!absl::EndsWith(path, ".gguf")) {
    std::ifstream file(path, std::ios::binary);
    const std::string text{std::istreambuf_iterator<char>(file), {}};
    ASSIGN_OR_RETURN(TokenizerSpec spec, TokenizerSpecFromHuggingFace(text, ""));
    return Tokenizer::Create(std::move(spec));
  }
  ASSIGN_OR_RETURN(const Checkpoint checkpoint, OpenCheckpoint(path));
  ASSIGN_OR_RETURN(auto spec, ReadTokenizer(checkpoint, path));
  if (!spec.value.has_value()) return absl::NotFoundError(path + ": no tokenizer");
  return Tokenizer::Create(*std::move(spec.value));
}

absl::StatusOr<std::vector<Ids>> EncodeAll(const Tokenizer& tokenizer,
                                           const std::vector<std::string>& texts) {
  std::vector<Ids> all;
  all.reserve(texts.size());
  for (const std::string& text : texts) {
    ASSIGN_OR_RETURN(Ids ids, tokenizer.Encode(text, {{.first = 0, .length = text.size()}}));
    all.push_back(std::move(ids));
  }
  return all;
}

absl::StatusOr<json> TimeEncode(const Tokenizer& tokenizer, const std::vector<std::string>& texts) {
  const auto start = std::chrono::steady_clock::now();
  ASSIGN_OR_RETURN(const std::vector<Ids> all, EncodeAll(tokenizer, texts));
  const std::chrono::duration<double> taken = std::chrono::steady_clock::now() - start;
  size_t tokens = 0;
  for (const Ids& ids : all)
    tokens += ids.size();
  return json{{"seconds", taken.count()}, {"tokens", tokens}};
}

json DecodeAll(const Tokenizer& tokenizer, const json& command) {
  json texts = json::array();
  json streamed = json::array();
  for (const json& entry : command["decode"]) {
    const auto ids = entry.get<Ids>();
    texts.push_back(tokenizer.Decode(ids, command["skip_special"].get<bool>()));
    TextAccumulator accumulator(tokenizer);
    for (const int32_t id : ids)
      accumulator.Append(id);
    accumulator.Finish();
    streamed.push_back(accumulator.text());
  }
  return {{"texts", std::move(texts)}, {"streamed", std::move(streamed)}};
}

absl::StatusOr<json> Answer(const Tokenizer& tokenizer, const json& command,
                            std::vector<std::string>& texts) {
  if (command.contains("texts")) {
    texts = command["texts"].get<std::vector<std::string>>();
    size_t bytes = 0;
    for (const std::string& text : texts)
      bytes += text.size();
    return json{{"bytes", bytes}};
  }
  if (command.contains("encode")) return TimeEncode(tokenizer, texts);
  if (command.contains("decode")) return DecodeAll(tokenizer, command);
  ASSIGN_OR_RETURN(std::vector<Ids> ids, EncodeAll(tokenizer, texts));
  return json{{"ids", std::move(ids)}};
}

absl::Status Run(const std::string& path) {
  ASSIGN_OR_RETURN(const auto tokenizer, Open(path));
  std::vector<std::string> texts;
  for (std::string line; std::getline(std::cin, line);) {
    ASSIGN_OR_RETURN(const json answer, Answer(*tokenizer, json::parse(line), texts));
    std::cout << answer.dump() << std::endl;
  }
  return absl::OkStatus();
}

}  // namespace
}  // namespace nightshift

int main(int argc, char** argv) {
  if (argc != 2) {
    std::cerr << "usage: tokenizer_pipe TOKENIZER_JSON|MODEL_GGUF\n";
    return 2;
  }
  const absl::Status status = nightshift::Run(argv[1]);
  if (!status.ok()) std::cerr << status.message() << '\n';
  return status.ok() ? 0 : 1;
}
