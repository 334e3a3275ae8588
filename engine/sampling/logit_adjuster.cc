#include "engine/sampling/logit_adjuster.h"

#include <algorithm>
#include <iterator>
#include <limits>
#include <utility>

namespace nightshift {
namespace {

bool IsBefore(const LogitAdjustment& adjustment, int32_t token) {
  return adjustment.token < token;
}

LogitAdjustment Ban(int32_t token) {
  return {.token = token, .bias = -std::numeric_limits<float>::infinity()};
}

void SortAndDropRepeats(std::vector<int32_t>& tokens) {
  std::sort(tokens.begin(), tokens.end());
  tokens.erase(std::unique(tokens.begin(), tokens.end()), tokens.end());
}

}  // namespace

LogitAdjuster::LogitAdjuster(const SamplingParams& params, std::vector<int32_t> end_tokens,
                             std::span<const int32_t> prompt)
    : params_(params),
      end_tokens_(std::move(end_tokens)),
      counts_output_(params.repetition_penalty != 1.0F || params.presence_penalty != 0.0F ||
                     params.frequency_penalty != 0.0F) {
  if (params.repetition_penalty != 1.0F) {
    std::vector<int32_t> tokens(prompt.begin(), prompt.end());
    SortAndDropRepeats(tokens);
    for (const int32_t token : tokens) {
      lasting_.push_back({.token = token, .repetition = params.repetition_penalty});
    }
    counts_.resize(lasting_.size(), 0);
  }
  for (const LogitBias& bias : params.logit_bias) {
    lasting_[EntryOf(bias.token)].bias += bias.bias;
  }
}

size_t LogitAdjuster::EntryOf(int32_t token) {
  const auto found = std::lower_bound(lasting_.begin(), lasting_.end(), token, IsBefore);
  const std::ptrdiff_t index = found - lasting_.begin();
  if (found == lasting_.end() || found->token != token) {
    lasting_.insert(found, {.token = token});
    counts_.insert(counts_.begin() + index, 0);
  }
  return static_cast<size_t>(index);
}

void LogitAdjuster::Append(int32_t token) {
  generated_.push_back(token);
  if (!counts_output_) {
    return;
  }
  const size_t entry = EntryOf(token);
  ++counts_[entry];
  lasting_[entry].repetition = params_.repetition_penalty;
  lasting_[entry].penalty = static_cast<float>(static_cast<double>(params_.frequency_penalty) *
                                                   static_cast<double>(counts_[entry]) +
                                               static_cast<double>(params_.presence_penalty));
}

std::span<const LogitAdjustment> LogitAdjuster::Next() {
  banned_.clear();
  BanBadWords();
  BanEnds();
  if (banned_.empty()) {
    return lasting_;
  }
  SortAndDropRepeats(banned_);
  MergeBans();
  return merged_;
}

void LogitAdjuster::BanBadWords() {
  for (const std::vector<int32_t>& word : params_.bad_words) {
    const size_t before = word.size() - 1;
    if (generated_.size() >= before &&
        std::equal(word.begin(), word.end() - 1,
                   generated_.end() - static_cast<std::ptrdiff_t>(before))) {
      banned_.push_back(word.back());
    }
  }
}

void LogitAdjuster::BanEnds() {
  if (static_cast<int64_t>(generated_.size()) < params_.min_output_tokens) {
    banned_.insert(banned_.end(), end_tokens_.begin(), end_tokens_.end());
  }
}

void LogitAdjuster::MergeBans() {
  merged_.clear();
  auto lasting = lasting_.begin();
  for (const int32_t token : banned_) {
    const auto next = std::lower_bound(lasting, lasting_.end(), token, IsBefore);
    merged_.insert(merged_.end(), lasting, next);
    merged_.push_back(Ban(token));
    lasting = next != lasting_.end() && next->token == token ? next + 1 : next;
  }
  merged_.insert(merged_.end(), lasting, lasting_.end());
}

}  // namespace nightshift
