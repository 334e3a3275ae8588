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

constexpr absl::string_view kMagic = "P1";

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

}  // namespace

std::string SerializeProgress(const RequestProgress& progress) {
  std::string bytes(kMagic);
  bytes.push_back(progress.has_logprobs ? 1 : 0);
  AppendText(progress.model_digest, bytes);
  AppendText(progress.numeric_mode, bytes);
  AppendNumber(static_cast<uint32_t>(progress.generated.size()), bytes);
  for (const TokenLogprob& token : progress.generated) {
    AppendNumber(token.token, bytes);
    if (!progress.has_logprobs) {
      continue;
    }
    AppendNumber(token.logprob, bytes);
    AppendNumber(static_cast<uint32_t>(token.top.size()), bytes);
    for (const TopLogprob& top : token.top) {
      AppendNumber(top.token, bytes);
      AppendNumber(top.logprob, bytes);
    }
  }
  return bytes;
}

absl::StatusOr<RequestProgress> ParseProgress(absl::string_view bytes) {
  Cursor cursor(bytes);
  ASSIGN_OR_RETURN(const absl::string_view magic, cursor.Take(kMagic.size()));
  if (magic != kMagic) {
    return absl::DataLossError("stored progress has an unknown version");
  }
  RequestProgress progress;
  ASSIGN_OR_RETURN(const uint8_t has_logprobs, cursor.TakeNumber<uint8_t>());
  progress.has_logprobs = has_logprobs != 0;
  ASSIGN_OR_RETURN(progress.model_digest, cursor.TakeText());
  ASSIGN_OR_RETURN(progress.numeric_mode, cursor.TakeText());
  ASSIGN_OR_RETURN(const size_t count, cursor.TakeCount(sizeof(int32_t)));
  progress.generated.resize(count);
  for (TokenLogprob& token : progress.generated) {
    ASSIGN_OR_RETURN(token.token, cursor.TakeNumber<int32_t>());
    if (progress.has_logprobs) {
      RETURN_IF_ERROR(TakeLogprobs(cursor, token));
    }
  }
  if (!cursor.at_end()) {
    return absl::DataLossError("stored progress has bytes behind its end");
  }
  return progress;
}

}  // namespace nightshift
