#include "client/evaluation_measure.h"

#include <algorithm>
#include <cmath>
#include <map>

namespace nightshift {
namespace {

double Ratio(double value, int64_t by) {
  return by > 0 ? value / static_cast<double>(by) : 0.0;
}

bool IsBest(const v1::TokenLogprob& token) {
  return token.top_size() > 0 && token.top(0).token() == token.token();
}

// Log-probabilities by token: those of the alternatives and of the token itself.
std::map<int32_t, double> Known(const v1::TokenLogprob& token) {
  std::map<int32_t, double> known = {{token.token(), static_cast<double>(token.logprob())}};
  for (const v1::TopLogprob& top : token.top()) {
    known.emplace(top.token(), static_cast<double>(top.logprob()));
  }
  return known;
}

void AddToken(const v1::TokenLogprob& reference, const v1::TokenLogprob& model,
              Divergence& divergence) {
  // Sums of some twenty f32 probabilities are off by about as much.
  constexpr double kLeastRest = 1e-6;
  const std::map<int32_t, double> others = Known(model);
  double kl = 0.0;
  double rest = 1.0;
  double other_rest = 1.0;
  for (const auto& [token, logprob] : Known(reference)) {
    const auto other = others.find(token);
    if (other == others.end()) {
      continue;
    }
    const double p = std::exp(logprob);
    if (p > 0.0) {
      kl += p * (logprob - other->second);
    }
    rest -= p;
    other_rest -= std::exp(other->second);
  }
  rest = std::max(rest, kLeastRest);
  kl += rest * std::log(rest / std::max(other_rest, kLeastRest));
  divergence.kl += std::max(kl, 0.0);
  divergence.rest += rest;
  ++divergence.tokens;
  if (reference.top_size() > 0 && model.top_size() > 0 &&
      reference.top(0).token() == model.top(0).token()) {
    ++divergence.agreeing;
  }
}

}  // namespace

double Measure::accuracy() const {
  return Ratio(static_cast<double>(correct), items);
}

double Measure::perplexity() const {
  return std::exp(-Ratio(logprob, tokens));
}

double Measure::word_perplexity() const {
  return std::exp(-Ratio(logprob, words));
}

double Measure::bits_per_byte() const {
  return -Ratio(logprob, bytes) / std::log(2.0);
}

void AddScore(const EvaluationItem& item, const v1::ChoiceScore& score, Measure& measure) {
  ++measure.items;
  measure.correct += std::all_of(score.logprobs().begin(), score.logprobs().end(), IsBest) ? 1 : 0;
  measure.tokens += score.token_ids_size();
  measure.words += item.words;
  measure.bytes += static_cast<int64_t>(item.text.size());
  measure.logprob += score.logprob();
}

void AddDivergence(const v1::ChoiceScore& reference, const v1::ChoiceScore& model,
                   Divergence& divergence) {
  if (!std::equal(reference.token_ids().begin(), reference.token_ids().end(),
                  model.token_ids().begin(), model.token_ids().end()) ||
      reference.logprobs_size() != model.logprobs_size()) {
    ++divergence.unlike_items;
    return;
  }
  for (int i = 0; i < reference.logprobs_size(); ++i) {
    AddToken(reference.logprobs(i), model.logprobs(i), divergence);
  }
}

}  // namespace nightshift
