#include "engine/sampling/completion.h"

#include <algorithm>
#include <utility>

#include "kernels/base/check.h"

namespace nightshift {
namespace {

bool Contains(const std::vector<int32_t>& tokens, int32_t token) {
  return std::find(tokens.begin(), tokens.end(), token) != tokens.end();
}

}  // namespace

Completion::Completion(const Tokenizer* tokenizer, StopRules rules) : rules_(std::move(rules)) {
  CHECK(tokenizer != nullptr || rules_.stop_strings.empty());
  if (tokenizer != nullptr) {
    text_.emplace(*tokenizer);
  }
  for (const std::string& stop : rules_.stop_strings) {
    longest_stop_ = std::max(longest_stop_, stop.size());
  }
}

std::optional<Ending> Completion::Append(int32_t token) {
  const int64_t before = static_cast<int64_t>(ends_.size());
  const bool may_end = before >= rules_.min_output_tokens;
  if (may_end && Contains(rules_.stop_tokens, token)) {
    Ending ending = EndWithWholeText(FinishReason::kStop, before);
    ending.stop_reason = std::to_string(token);
    return ending;
  }
  if (may_end && Contains(rules_.model_end_tokens, token)) {
    return EndWithWholeText(FinishReason::kStop, before);
  }
  const size_t searched_bytes = text_.has_value() ? text_->text().size() : 0;
  AppendText(token);
  if (may_end) {
    if (const std::optional<StopMatch> match = FindStop(searched_bytes); match.has_value()) {
      return EndAtStopString(*match);
    }
  }
  if (before + 1 >= rules_.max_output_tokens) {
    return EndWithWholeText(FinishReason::kLength, before + 1);
  }
  return std::nullopt;
}

void Completion::AppendText(int32_t token) {
  TokenEnd end;
  if (text_.has_value()) {
    text_->Append(token);
    end = {text_->text().size(), text_->has_pending()};
  }
  ends_.push_back(end);
}

// Only matches that end behind the first `searched_bytes` can be new.
std::optional<Completion::StopMatch> Completion::FindStop(size_t searched_bytes) const {
  std::optional<StopMatch> first;
  if (longest_stop_ == 0) {
    return first;
  }
  const std::string& text = text_->text();
  const size_t from = searched_bytes - std::min(searched_bytes, longest_stop_ - 1);
  for (size_t i = 0; i < rules_.stop_strings.size(); ++i) {
    const size_t position = text.find(rules_.stop_strings[i], from);
    if (position != std::string::npos && (!first.has_value() || position < first->position)) {
      first = {position, i};
    }
  }
  return first;
}

// A cut lies between characters, so a token with held-back bytes ends before the cut only if the
// text goes on behind the place where it stood.
Ending Completion::EndAtStopString(const StopMatch& match) const {
  Ending ending;
  ending.reason = FinishReason::kStop;
  ending.stop_reason = rules_.stop_strings[match.stop_index];
  ending.text = text_->text().substr(0, match.position);
  const auto is_kept = [&](const TokenEnd& end) {
    return end.has_pending ? end.text_bytes < match.position : end.text_bytes <= match.position;
  };
  // Ends ascend, so the kept tokens come first.
  ending.kept_tokens = std::partition_point(ends_.begin(), ends_.end(), is_kept) - ends_.begin();
  return ending;
}

Ending Completion::EndWithWholeText(FinishReason reason, int64_t kept_tokens) {
  Ending ending;
  ending.reason = reason;
  ending.kept_tokens = kept_tokens;
  if (text_.has_value()) {
    text_->Finish();
    ending.text = text_->text();
  }
  return ending;
}

}  // namespace nightshift
