#include "server/scheduling/output_lengths.h"

#include <algorithm>
#include <cmath>

namespace nightshift {
namespace {

// Below this many completions a slope is a guess.
constexpr double kLeastForSlope = 16;
// Sums are halved at this count: a job whose documents change is learned anew.
constexpr double kMostCounted = 4096;
constexpr double kLongest = 1e12;

}  // namespace

void OutputLengths::Begin(const std::string& job_id, int64_t rows, int64_t prompt_tokens,
                          int64_t output_tokens) {
  if (rows <= 0) {
    return;
  }
  const double count = std::min(static_cast<double>(rows), kLeastForSlope);
  const double share = count / static_cast<double>(rows);
  jobs_[job_id].before = {.count = count,
                          .prompt = static_cast<double>(prompt_tokens) * share,
                          .output = static_cast<double>(output_tokens) * share};
}

void OutputLengths::Learn(const std::string& job_id, int64_t prompt_tokens,
                          int64_t output_tokens) {
  Sums& sums = jobs_[job_id].learned;
  const double prompt = static_cast<double>(prompt_tokens);
  const double output = static_cast<double>(output_tokens);
  sums.count += 1;
  sums.prompt += prompt;
  sums.output += output;
  sums.prompt_squared += prompt * prompt;
  sums.product += prompt * output;
  if (sums.count >= kMostCounted) {
    for (double* sum :
         {&sums.count, &sums.prompt, &sums.output, &sums.prompt_squared, &sums.product}) {
      *sum /= 2;
    }
  }
}

int64_t OutputLengths::Predict(const std::string& job_id, int64_t prompt_tokens,
                               int64_t max_output_tokens) const {
  const auto found = jobs_.find(job_id);
  if (found == jobs_.end() || max_output_tokens <= 1) {
    return max_output_tokens;
  }
  const auto& [learned, before] = found->second;
  const double count = learned.count + before.count;
  if (count == 0) {
    return max_output_tokens;
  }
  double predicted = (learned.output + before.output) / count;
  const double mean_prompt = learned.prompt / std::max(learned.count, 1.0);
  const double spread = learned.prompt_squared - learned.prompt * mean_prompt;
  if (learned.count >= kLeastForSlope && spread > learned.count) {
    const double slope = (learned.product - learned.output * mean_prompt) / spread;
    predicted = learned.output / learned.count +
                slope * (static_cast<double>(prompt_tokens) - mean_prompt);
  }
  return std::clamp<int64_t>(std::llround(std::clamp(predicted, 1.0, kLongest)), 1,
                             max_output_tokens);
}

double OutputLengths::MeanTokens(const std::string& job_id, double unknown) const {
  const auto found = jobs_.find(job_id);
  if (found == jobs_.end()) {
    return unknown;
  }
  const auto& [learned, before] = found->second;
  const double count = learned.count + before.count;
  return count == 0 ? unknown
                    : (learned.prompt + learned.output + before.prompt + before.output) / count;
}

void OutputLengths::End(const std::string& job_id) {
  jobs_.erase(job_id);
}

}  // namespace nightshift
