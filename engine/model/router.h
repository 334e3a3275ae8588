// The choice of a token's experts from the router's logits.
#pragma once

#include <cstdint>
#include <span>

namespace nightshift {

struct ExpertChoice {
  int64_t expert = 0;
  float weight = 0.0F;  // of the expert's output
};

// Fills `choices` (1 to X of them) with the experts of the highest logits [X], of equal ones the
// lower number, in ascending order of their numbers. Weights are shares of a softmax over the
// chosen experts when `normalise`, else over all. Logits that are NaN make weights NaN.
void ChooseExperts(std::span<const float> logits, bool normalise, std::span<ExpertChoice> choices);

}  // namespace nightshift
