// ChatTemplate: renders messages by the model's own template, a bounded Jinja interpreter.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "absl/status/statusor.h"

#include "engine/text/text_range.h"

namespace nightshift {

struct ChatTemplateLimits {
  int64_t max_steps = 1'000'000;  // evaluated nodes and visited elements
  int64_t max_depth = 64;         // nesting of statements, and of expressions
  int64_t max_output_bytes = 32 << 20;
  // Text that operations read or make, which also bounds memory: published templates pass over a
  // message some ten times.
  int64_t max_work_bytes = 256 << 20;
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
  // More variables for the template, as CheckTemplateArguments wants them; as untrusted as the
  // messages.
  nlohmann::ordered_json arguments = nlohmann::ordered_json::object();
  // What strftime_now tells, microseconds of Unix time, in UTC. Absent: the template does not have
  // that function, and takes the date that it holds for that case.
  std::optional<int64_t> now_us = std::nullopt;
};

// Immutable; Render is thread-safe.
class ChatTemplate {
 public:
  // Errors: INVALID_ARGUMENT with line and what is not supported.
  static absl::StatusOr<std::unique_ptr<ChatTemplate>> Parse(const std::string& source,
                                                             ChatTemplateLimits limits = {});
  ~ChatTemplate();

  // messages: a JSON array of {"role", "content", ...}, whose order of names tojson keeps.
  // Errors: INVALID_ARGUMENT with line and expression (also raise_exception);
  // RESOURCE_EXHAUSTED naming the limit.
  absl::StatusOr<RenderedText> Render(const nlohmann::ordered_json& messages,
                                      const RenderOptions& options) const;

 private:
  struct Program;
  ChatTemplate(std::unique_ptr<const Program> program, const ChatTemplateLimits& limits);

  std::unique_ptr<const Program> program_;
  ChatTemplateLimits limits_;
};

}  // namespace nightshift
