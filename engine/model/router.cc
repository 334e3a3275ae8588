#include "engine/model/router.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <vector>

#include "kernels/base/check.h"

namespace nightshift {

void ChooseExperts(std::span<const float> logits, bool normalise, std::span<ExpertChoice> choices) {
  CHECK_LE(choices.size(), logits.size());
  // NaN has no place in an order; it comes last and shows in the weights.
  const auto rank = [logits](int64_t expert) {
    const float logit = logits[static_cast<size_t>(expert)];
    return std::isnan(logit) ? -std::numeric_limits<float>::infinity() : logit;
  };
  std::vector<int64_t> order(logits.size());
  std::iota(order.begin(), order.end(), 0);
  const auto chosen_end = order.begin() + static_cast<std::ptrdiff_t>(choices.size());
  std::partial_sort(order.begin(), chosen_end, order.end(), [&rank](int64_t a, int64_t b) {
    return rank(a) > rank(b) || (rank(a) == rank(b) && a < b);
  });
  const double highest = static_cast<double>(rank(order.front()));
  std::sort(order.begin(), chosen_end);
  const auto share = [logits, highest](int64_t expert) {
    return std::exp(static_cast<double>(logits[static_cast<size_t>(expert)]) - highest);
  };
  double sum = 0.0;
  if (normalise) {
    std::for_each(order.begin(), chosen_end, [&](int64_t expert) { sum += share(expert); });
  } else {
    for (size_t expert = 0; expert < logits.size(); ++expert) {
      sum += share(static_cast<int64_t>(expert));
    }
  }
  for (size_t i = 0; i < choices.size(); ++i) {
    choices[i] = {order[i], static_cast<float>(share(order[i]) / sum)};
  }
}

}  // namespace nightshift
