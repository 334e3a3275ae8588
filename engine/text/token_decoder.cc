#include "engine/text/token_decoder.h"

#include "absl/strings/match.h"
#include "absl/strings/str_replace.h"

#include "engine/text/character_fallback.h"
#include "kernels/base/utf8.h"

namespace nightshift {
namespace {

constexpr char kReplacement[] = "\xEF\xBF\xBD";

}  // namespace

TokenDecoder::TokenDecoder(const TokenizerSpec& spec)
    : of_bytes_(spec.model == kByteBpe), decoder_(spec.decoder), is_byte_(spec.tokens.size()) {
  const bool first_differs = !decoder_.dropped_in_first.empty();
  if (first_differs) first_texts_.resize(spec.tokens.size());
  offsets_.reserve(spec.tokens.size() + 1);
  for (size_t id = 0; id < spec.tokens.size(); ++id) {
    const std::string& token = spec.tokens[id];
    offsets_.push_back(bytes_.size());
    if (of_bytes_) {
      bytes_ += token;
      continue;
    }
    const int byte = decoder_.byte_fallback ? ByteOfToken(token) : -1;
    is_byte_[id] = byte >= 0;
    if (byte >= 0) {
      bytes_.push_back(static_cast<char>(byte));
    } else {
      bytes_ += TextOf(token, /*is_first=*/false);
      if (first_differs) first_texts_[id] = TextOf(token, /*is_first=*/true);
    }
  }
  offsets_.push_back(bytes_.size());
}

std::string TokenDecoder::TextOf(const std::string& token, bool is_first) const {
  std::string text = token;
  if (is_first) absl::StrReplaceAll({{decoder_.dropped_in_first, ""}}, &text);
  for (const DecoderSpec::Replacement& replacement : decoder_.replacements)
    absl::StrReplaceAll({{replacement.from, replacement.to}}, &text);
  return text;
}

absl::string_view TokenDecoder::BytesOf(int32_t id) const {
  if (id < 0 || static_cast<size_t>(id) >= is_byte_.size()) return {};
  const auto i = static_cast<size_t>(id);
  return absl::string_view(bytes_).substr(offsets_[i], offsets_[i + 1] - offsets_[i]);
}

TokenDecoder::Progress TokenDecoder::Start() const {
  Progress progress;
  progress.strips_left = decoder_.strip_count;
  return progress;
}

void TokenDecoder::AddText(absl::string_view text, Progress& progress) const {
  while (progress.strips_left > 0 && !text.empty()) {
    if (decoder_.stripped.empty() || !absl::StartsWith(text, decoder_.stripped)) {
      progress.strips_left = 0;
      break;
    }
    text.remove_prefix(decoder_.stripped.size());
    --progress.strips_left;
  }
  progress.text.append(text.data(), text.size());
}

void TokenDecoder::EndBytes(Progress& progress) const {
  if (progress.pending.empty()) return;
  if (FindInvalidUtf8(progress.pending) == absl::string_view::npos) {
    AddText(progress.pending, progress);
  } else {
    for (size_t i = 0; i < progress.pending.size(); ++i)
      AddText(kReplacement, progress);
  }
  progress.pending.clear();
}

void TokenDecoder::Append(int32_t id, Progress& progress) const {
  const absl::string_view bytes = BytesOf(id);
  if (of_bytes_) {
    progress.pending.append(bytes.data(), bytes.size());
    MoveCompleteCharacters(progress.pending, /*finish=*/false, progress.text);
    return;
  }
  if (id < 0 || static_cast<size_t>(id) >= is_byte_.size()) return;
  const auto i = static_cast<size_t>(id);
  if (is_byte_[i]) {
    progress.pending.append(bytes.data(), bytes.size());
  } else {
    EndBytes(progress);
    const bool is_first = !progress.has_tokens && !first_texts_.empty();
    AddText(is_first ? absl::string_view(first_texts_[i]) : bytes, progress);
  }
  progress.has_tokens = progress.has_tokens || !bytes.empty();
}

void TokenDecoder::Finish(Progress& progress) const {
  if (of_bytes_) {
    MoveCompleteCharacters(progress.pending, /*finish=*/true, progress.text);
  } else {
    EndBytes(progress);
  }
}

}  // namespace nightshift
