#include "server/scheduling/progress.h"

#include <array>
#include <bit>
#include <cstdint>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"

#include "kernels/base/status_macros.h"

namespace nightshift {
namespace {

static_assert(std::endian::native == std::endian::little);

constexpr absl::string_view kVersion1 = "P1";
constexpr absl::string_view kVersion2 = "P2";

template <typename Number>
void AppendNumber(Number number, std::string& bytes) {
  std::array<char, sizeof(Number)> raw;
  std::memcpy(raw.data(), &number, sizeof(Number));
  bytes.append(raw.data(), raw.size());
}

void AppendText(const std::string& text, std::string& bytes) {
  AppendNumber(static_cast<uint32_t>(text.size()), bytes);
  bytes.append(text);
}

void AppendTokens(const std::vector<TokenLogprob>& tokens, bool has_logprobs, std::string& bytes) {
  AppendNumber(static_cast<uint32_t>(tokens.size()), bytes);
  for (const TokenLogprob& token : tokens) {
    AppendNumber(token.token, bytes);
    if (!has_logprobs) {
      continue;
    }
    AppendNumber(token.logprob, bytes);
    AppendNumber(static_cast<uint32_t>(token.top.size()), bytes);
    for (const TopLogprob& top : token.top) {
      AppendNumber(top.token, bytes);
      AppendNumber(top.logprob, bytes);
    }
  }
}

void AppendChoice(const ChoiceProgress& choice, bool has_logprobs, std::string& bytes) {
  AppendTokens(choice.generated, has_logprobs, bytes);
  AppendNumber(static_cast<uint8_t>(choice.end.has_value() ? 1 : 0), bytes);
  if (choice.end.has_value()) {
    AppendNumber(static_cast<uint8_t>(choice.end->finish_reason), bytes);
    AppendText(choice.end->stop_reason, bytes);
    AppendText(choice.end->text, bytes);
    AppendNumber(static_cast<uint32_t>(choice.end->kept_tokens), bytes);
  }
}

// Takes values from the front; every length is checked against what is left.
class Cursor {
 public:
  explicit Cursor(absl::string_view bytes) : bytes_(bytes) {}

  absl::StatusOr<absl::string_view> Take(size_t count) {
    if (count > bytes_.size() - offset_) {
      return absl::DataLossError(absl::StrCat("stored progress ends at ", bytes_.size(), ", needs ",
                                              count, " bytes at ", offset_));
    }
    const absl::string_view taken = bytes_.substr(offset_, count);
    offset_ += count;
    return taken;
  }
  template <typename Number>
  absl::StatusOr<Number> TakeNumber() {
    ASSIGN_OR_RETURN(const absl::string_view raw, Take(sizeof(Number)));
    Number number;
    std::memcpy(&number, raw.data(), sizeof(Number));
    return number;
  }
  absl::StatusOr<std::string> TakeText() {
    ASSIGN_OR_RETURN(const uint32_t length, TakeNumber<uint32_t>());
    ASSIGN_OR_RETURN(const absl::string_view text, Take(length));
    return std::string(text);
  }
  // A count of items of at least `item_bytes` each.
  absl::StatusOr<size_t> TakeCount(size_t item_bytes) {
    ASSIGN_OR_RETURN(const uint32_t count, TakeNumber<uint32_t>());
    if (count > (bytes_.size() - offset_) / item_bytes) {
      return absl::DataLossError(
          absl::StrCat("stored progress counts ", count, " items at ", offset_));
    }
    return count;
  }
  bool at_end() const { return offset_ == bytes_.size(); }

 private:
  absl::string_view bytes_;
  size_t offset_ = 0;
};

absl::Status TakeLogprobs(Cursor& cursor, TokenLogprob& token) {
  ASSIGN_OR_RETURN(token.logprob, cursor.TakeNumber<float>());
  ASSIGN_OR_RETURN(const size_t count, cursor.TakeCount(sizeof(int32_t) + sizeof(float)));
  token.top.resize(count);
  for (TopLogprob& top : token.top) {
    ASSIGN_OR_RETURN(top.token, cursor.TakeNumber<int32_t>());
    ASSIGN_OR_RETURN(top.logprob, cursor.TakeNumber<float>());
  }
  return absl::OkStatus();
}

absl::StatusOr<std::vector<TokenLogprob>> TakeTokens(Cursor& cursor, bool has_logprobs) {
  ASSIGN_OR_RETURN(const size_t count, cursor.TakeCount(sizeof(int32_t)));
  std::vector<TokenLogprob> tokens(count);
  for (TokenLogprob& token : tokens) {
    ASSIGN_OR_RETURN(token.token, cursor.TakeNumber<int32_t>());
    if (has_logprobs) {
      RETURN_IF_ERROR(TakeLogprobs(cursor, token));
    }
  }
  return tokens;
}

absl::StatusOr<ChoiceEnd> TakeEnd(Cursor& cursor, size_t num_generated) {
  ChoiceEnd end;
  ASSIGN_OR_RETURN(const uint8_t reason, cursor.TakeNumber<uint8_t>());
  if (reason != static_cast<uint8_t>(FinishReason::kStop) &&
      reason != static_cast<uint8_t>(FinishReason::kLength)) {
    return absl::DataLossError(
        absl::StrCat("stored progress has the unknown finish reason ", reason));
  }
  end.finish_reason = static_cast<FinishReason>(reason);
  ASSIGN_OR_RETURN(end.stop_reason, cursor.TakeText());
  ASSIGN_OR_RETURN(end.text, cursor.TakeText());
  ASSIGN_OR_RETURN(end.kept_tokens, cursor.TakeNumber<uint32_t>());
  if (end.kept_tokens > static_cast<int64_t>(num_generated)) {
    return absl::DataLossError(
        absl::StrCat("stored progress keeps ", end.kept_tokens, " of ", num_generated, " tokens"));
  }
  return end;
}

absl::StatusOr<ChoiceProgress> TakeChoice(Cursor& cursor, bool has_logprobs) {
  ChoiceProgress choice;
  ASSIGN_OR_RETURN(choice.generated, TakeTokens(cursor, has_logprobs));
  ASSIGN_OR_RETURN(const uint8_t ended, cursor.TakeNumber<uint8_t>());
  if (ended != 0) {
    ASSIGN_OR_RETURN(choice.end, TakeEnd(cursor, choice.generated.size()));
  }
  return choice;
}

absl::Status TakeChoices(Cursor& cursor, RequestProgress& progress) {
  ASSIGN_OR_RETURN(progress.prompt_logprobs, TakeTokens(cursor, /*has_logprobs=*/true));
  constexpr size_t kLeastChoiceBytes = sizeof(uint32_t) + 1;
  ASSIGN_OR_RETURN(const size_t count, cursor.TakeCount(kLeastChoiceBytes));
  for (size_t i = 0; i < count; ++i) {
    ASSIGN_OR_RETURN(ChoiceProgress choice, TakeChoice(cursor, progress.has_logprobs));
    progress.choices.push_back(std::move(choice));
  }
  return absl::OkStatus();
}

}  // namespace

std::string SerializeProgress(const RequestProgress& progress) {
  std::string bytes(kVersion2);
  bytes.push_back(progress.has_logprobs ? 1 : 0);
  AppendText(progress.model_digest, bytes);
  AppendText(progress.numeric_mode, bytes);
  AppendTokens(progress.prompt_logprobs, /*has_logprobs=*/true, bytes);
  AppendNumber(static_cast<uint32_t>(progress.choices.size()), bytes);
  for (const ChoiceProgress& choice : progress.choices) {
    AppendChoice(choice, progress.has_logprobs, bytes);
  }
  return bytes;
}

absl::StatusOr<RequestProgress> ParseProgress(absl::string_view bytes) {
  Cursor cursor(bytes);
  ASSIGN_OR_RETURN(const absl::string_view version, cursor.Take(kVersion2.size()));
  if (version != kVersion1 && version != kVersion2) {
    return absl::DataLossError("stored progress has an unknown version");
  }
  RequestProgress progress;
  ASSIGN_OR_RETURN(const uint8_t has_logprobs, cursor.TakeNumber<uint8_t>());
  progress.has_logprobs = has_logprobs != 0;
  ASSIGN_OR_RETURN(progress.model_digest, cursor.TakeText());
  ASSIGN_OR_RETURN(progress.numeric_mode, cursor.TakeText());
  if (version == kVersion1) {
    ASSIGN_OR_RETURN(progress.choices.emplace_back().generated,
                     TakeTokens(cursor, progress.has_logprobs));
  } else {
    RETURN_IF_ERROR(TakeChoices(cursor, progress));
  }
  if (!cursor.at_end()) {
    return absl::DataLossError("stored progress has bytes behind its end");
  }
  return progress;
}

}  // namespace nightshift
