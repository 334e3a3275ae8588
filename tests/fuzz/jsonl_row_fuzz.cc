// Input: a file of rows. It is cut into lines, and into messages of a proto stream; each row is
// parsed, what can run is encoded with a tiny tokenizer, its choices too, what cannot becomes an
// error result.
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>

#include "absl/status/statusor.h"

#include "engine/text/prompt_encoder.h"
#include "server/input/line_splitter.h"
#include "server/input/request_check.h"
#include "server/input/request_parser.h"
#include "server/input/result_builder.h"
#include "server/scheduling/scored_choices.h"
#include "tests/fuzz/fuzz_input.h"

namespace nightshift {
namespace {

constexpr int64_t kMaxRowBytes = 1 << 16;
constexpr char kTemplate[] =
    "{% for m in messages %}<|{{ m.role }}|>{{ m.content }}<|end|>{% endfor %}";

// Every byte is a token, and <|end|> a special one.
const PromptEncoder& Encoder() {
  static const std::unique_ptr<PromptEncoder> encoder = [] {
    TokenizerSpec spec;
    for (int byte = 0; byte < 256; ++byte) {
      spec.tokens.emplace_back(1, static_cast<char>(byte));
    }
    spec.tokens.emplace_back("<|end|>");
    spec.added_tokens.push_back({.id = 256, .text = "<|end|>", .special = true});
    auto created = PromptEncoder::Create(std::move(spec), kTemplate);
    CHECK(created.ok());
    return *std::move(created);
  }();
  return *encoder;
}

using Tokens = std::vector<int32_t>;

void Append(const Tokens& more, Tokens& tokens) {
  tokens.insert(tokens.end(), more.begin(), more.end());
}

// What runs: the input, with a continuation behind it.
Tokens Encode(const v1::InferenceRequest& request, const std::string& continuation) {
  const EncodeOptions options = {.continuation = continuation};
  absl::StatusOr<Tokens> tokens;
  if (request.has_prompt()) {
    tokens = Encoder().EncodePrompt(request.prompt(), options);
  } else if (request.has_chat()) {
    nlohmann::json messages = nlohmann::json::array();
    for (const v1::ChatMessage& message : request.chat().messages()) {
      messages.push_back({{"role", message.role()}, {"content", message.content()}});
    }
    tokens = Encoder().EncodeChat(messages, options);
  } else {
    tokens = Tokens(request.tokens().ids().begin(), request.tokens().ids().end());
    Append(Encoder().tokenizer()->Encode(continuation, {}).value(), *tokens);
  }
  CHECK(tokens.ok());
  return *std::move(tokens);
}

// Choices are scored behind what the prompt alone and all of them begin with.
void EncodeChoices(const v1::InferenceRequest& request, const Tokens& prompt) {
  std::vector<Tokens> whole;
  for (const v1::Continuation& choice : request.choices()) {
    if (choice.has_tokens()) {
      Append(Tokens(choice.tokens().ids().begin(), choice.tokens().ids().end()),
             whole.emplace_back(prompt));
    } else {
      whole.push_back(Encode(request, choice.text()));
    }
  }
  const absl::StatusOr<CommonPrompt> split = SplitChoices(prompt, whole);
  if (!split.ok()) {
    return;
  }
  CHECK_EQ(split->rests.size(), whole.size());
  for (size_t i = 0; i < whole.size(); ++i) {
    CHECK(!split->rests[i].empty());
    Tokens together = split->prompt;
    Append(split->rests[i], together);
    CHECK(together == whole[i]);
  }
}

void ReadRow(v1::InputFormat format, absl::string_view bytes) {
  const ParsedRow row = ParseRow(format, bytes, {.max_line_bytes = kMaxRowBytes});
  const ResultHeader header = {
      .index = 1, .line = 2, .custom_id = row.request.custom_id(), .form = row.request.form()};
  if (!row.status.ok()) {
    CHECK(!BuildErrorResult(header, row.status).empty());
    return;
  }
  CHECK(CheckRequest(row.request, {}).ok());
  const Tokens prompt = Encode(row.request, "");
  if (row.request.choices_size() > 0) {
    EncodeChoices(row.request, prompt);
  }
}

template <typename Splitter>
void ReadRows(v1::InputFormat format, absl::string_view input) {
  const MemoryFile file(input);
  Splitter splitter(file.fd(), kMaxRowBytes);
  SplitRow row;
  for (auto more = splitter.Next(row); more.ok() && *more; more = splitter.Next(row)) {
    CHECK_LE(row.place.offset + row.place.length, static_cast<int64_t>(input.size()));
    ReadRow(format, row.bytes);
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  ReadRows<LineSplitter>(v1::INPUT_FORMAT_JSONL, InputText(data, size));
  ReadRows<MessageSplitter>(v1::INPUT_FORMAT_PROTO, InputText(data, size));
  return 0;
}

}  // namespace nightshift
