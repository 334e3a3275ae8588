// Input: a file of rows. It is cut into lines, and into messages of a proto stream; each row is
// parsed, what can run is encoded with a tiny tokenizer, what cannot becomes an error result.
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

void Encode(const v1::InferenceRequest& request) {
  if (request.has_prompt()) {
    CHECK(Encoder().EncodePrompt(request.prompt(), {}).ok());
  } else if (request.has_chat()) {
    nlohmann::json messages = nlohmann::json::array();
    for (const v1::ChatMessage& message : request.chat().messages()) {
      messages.push_back({{"role", message.role()}, {"content", message.content()}});
    }
    CHECK(Encoder().EncodeChat(messages, {}).ok());
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
  Encode(row.request);
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
