// ChatTemplate: renders messages by the model's own template, a bounded Jinja interpreter.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "absl/status/statusor.h"
#include "engine/text/tokenizer.h"

namespace nightshift {

struct ChatTemplateLimits {
  int64_t max_steps = 1'000'000;         // evaluated nodes
  int64_t max_depth = 64;                // nesting of statements and expressions
  int64_t max_output_bytes = 32 << 20;
  int64_t max_source_bytes = 1 << 20;
};

// Text with its origin: `trusted` are the parts written by the template itself (ascending,
// disjoint, adjacent ones merged); all else came from a caller's strings.
struct RenderedText {
  std::string text;
  std::vector<TextRange> trusted;
};

struct RenderOptions {
  bool add_generation_prompt = true;
  std::string bos_token;
  std::string eos_token;
  nlohmann::json arguments = nlohmann::json::object();  // chat_template_kwargs
};

class ChatTemplate {
 public:
  // Errors: INVALID_ARGUMENT with line and what is not supported.
  static absl::StatusOr<std::unique_ptr<ChatTemplate>> Parse(const std::string& source,
                                                             ChatTemplateLimits limits = {});
  virtual ~ChatTemplate() = default;
  // messages: a JSON array of {"role", "content", ...}. Thread-safe.
  // Errors: INVALID_ARGUMENT with line and expression (also raise_exception);
  // RESOURCE_EXHAUSTED naming the limit.
  virtual absl::StatusOr<RenderedText> Render(const nlohmann::json& messages,
                                              const RenderOptions& options) const = 0;
};

}  // namespace nightshift
