#include "server/scheduling/model_speeds.h"

#include <algorithm>

namespace nightshift {
namespace {

constexpr double kUnknownFactor = 3.0;

}  // namespace

void ModelSpeeds::Loaded(const ModelKey& key, int64_t parameters, double load_seconds) {
  Speed& speed = speeds_[key];
  speed.parameters = parameters;
  speed.load_seconds = load_seconds;
  loaded_ = speed;
}

void ModelSpeeds::Note(const ModelKey& key, const TokenCosts& costs, double uncertainty) {
  Speed& speed = speeds_[key];
  speed.is_known = true;
  speed.costs = costs;
  speed.uncertainty = uncertainty;
  loaded_ = speed;
}

bool ModelSpeeds::Knows(const ModelKey& key) const {
  return SpeedOf(key).is_known && speeds_.count(key) != 0;
}

double ModelSpeeds::LoadSeconds(const ModelKey& key) const {
  return SpeedOf(key).load_seconds;
}

const ModelSpeeds::Speed& ModelSpeeds::SpeedOf(const ModelKey& key) const {
  const auto found = speeds_.find(key);
  return found == speeds_.end() ? loaded_ : found->second;
}

TimeLeft ModelSpeeds::Alone(const ModelKey& key, int64_t parameters, const TokensLeft& left) const {
  const bool is_known = Knows(key);
  const Speed& speed = is_known ? SpeedOf(key) : loaded_;
  const double factor = is_known ? 1.0
                                 : static_cast<double>(parameters) /
                                       static_cast<double>(std::max<int64_t>(1, speed.parameters));
  const auto seconds = [&](double output_tokens) {
    return factor *
           (left.prompt * speed.costs.prompt_seconds + output_tokens * speed.costs.output_seconds);
  };
  const double wrong = is_known ? 1.0 + speed.uncertainty : kUnknownFactor;
  return {.seconds = seconds(left.output),
          .least_seconds = seconds(left.least_output) / wrong,
          .most_seconds = seconds(left.output) * wrong};
}

}  // namespace nightshift
