// An evaluation for people ("key: value" lines) and for programs (one line of JSON). Pure.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "client/evaluation_data.h"
#include "client/evaluation_measure.h"

namespace nightshift {

// One model's part.
struct EvaluatedModel {
  std::string model;
  std::string model_digest;
  std::string numeric_mode;
  std::string job;
  Measure measure;
};

struct EvaluationReport {
  EvaluationTask task = EvaluationTask::kPerplexity;
  std::string data;
  int64_t rows = 0;
  int64_t failed_rows = 0;  // of either model: they are not measured
  EvaluatedModel model;
  std::optional<EvaluatedModel> reference;
  Divergence divergence;  // with a reference
};

std::string EvaluationText(const EvaluationReport& report);
std::string EvaluationJson(const EvaluationReport& report);

}  // namespace nightshift
