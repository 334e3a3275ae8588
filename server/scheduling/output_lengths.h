// OutputLengths: how long the completions of a job are, learned from those that have ended. Pure
// but for what it has learned.
#pragma once

#include <cstdint>
#include <map>
#include <string>

namespace nightshift {

// A line through the lengths of prompts and of their completions: extracts and summaries grow with
// their document, labels do not. One thread.
class OutputLengths {
 public:
  // Of a job that ran before: its sums over `rows` rows.
  void Begin(const std::string& job_id, int64_t rows, int64_t prompt_tokens,
             int64_t output_tokens);
  void Learn(const std::string& job_id, int64_t prompt_tokens, int64_t output_tokens);
  // At least 1 and at most `max_output_tokens`, which it is while nothing is known of the job.
  int64_t Predict(const std::string& job_id, int64_t prompt_tokens,
                  int64_t max_output_tokens) const;
  // Prompt and output of a row of the job on average; `unknown` while nothing is known.
  double MeanTokens(const std::string& job_id, double unknown) const;
  void End(const std::string& job_id);

 private:
  struct Sums {
    double count = 0;
    double prompt = 0;
    double output = 0;
    double prompt_squared = 0;  // of learned ones only, as the product
    double product = 0;
  };
  struct Lengths {
    Sums learned;
    Sums before;  // what Begin told, with little weight
  };

  std::map<std::string, Lengths> jobs_;
};

}  // namespace nightshift
