// LogitAdjuster: which logits of a request's next token change, and how: steps 1 to 4 of
// SamplingParams. Pure.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "engine/sampling/sampling_params.h"
#include "kernels/ops.h"

namespace nightshift {

// Changes few tokens of the vocabulary, so the head applies them as it walks and stays exact. The
// state is a pure function of the prompt and the tokens appended: appending them again rebuilds it.
class LogitAdjuster {
 public:
  // `params` are valid and outlive this. `end_tokens` end a completion, and are banned before
  // min_output_tokens. All ids lie in the vocabulary.
  LogitAdjuster(const SamplingParams& params, std::vector<int32_t> end_tokens,
                std::span<const int32_t> prompt);

  // Takes the next generated token.
  void Append(int32_t token);

  // For the next token: ids ascend, none twice; empty when the model's own logits hold. Valid until
  // the next call of this or Append.
  std::span<const LogitAdjustment> Next();

 private:
  // Index of the token's entry in lasting_ and counts_, made where there is none.
  size_t EntryOf(int32_t token);
  void BanBadWords();
  void BanEnds();
  void MergeBans();

  const SamplingParams& params_;
  std::vector<int32_t> end_tokens_;
  bool counts_output_;  // a penalty looks at the output
  std::vector<int32_t> generated_;
  std::vector<LogitAdjustment> lasting_;  // biases and penalties; ids ascend
  std::vector<int64_t> counts_;           // of lasting_'s tokens in the output
  std::vector<int32_t> banned_;           // for the next token alone; ids ascend
  std::vector<LogitAdjustment> merged_;   // lasting_ with banned_
};

}  // namespace nightshift
