// EngineCall and EngineAnswer: the calls of engine.h as messages, one answer to each call.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

#include "engine/engine.h"

namespace nightshift {

enum class CallKind : uint8_t { kCreate, kAdmit, kSweep, kSuspend, kRetire, kApplyPlan };

// kCreate is the first call, and comes once.
struct EngineCall {
  CallKind kind = CallKind::kCreate;
  EngineOptions options{};                // of kCreate and kApplyPlan
  std::vector<EngineRequest> requests{};  // of kAdmit
  std::vector<uint64_t> ids{};            // of kSuspend and kRetire
};

struct EngineAnswer {
  absl::Status status;  // of kCreate, kSweep and kApplyPlan
  // Of the engine after the call; empty while there is none.
  EngineInfo info;
  EngineUsage usage;
  int64_t num_held = 0;
  std::vector<AdmitOutcome> outcomes;   // of kAdmit
  SweepResult sweep;                    // of kSweep
  std::vector<EngineRequest> requests;  // of kSuspend and kApplyPlan: suspended
};

std::string EncodeCall(const EngineCall& call);
std::string EncodeAnswer(const EngineAnswer& answer);
// Errors: DATA_LOSS for bytes that are not exactly one message.
absl::StatusOr<EngineCall> DecodeCall(absl::string_view bytes);
absl::StatusOr<EngineAnswer> DecodeAnswer(absl::string_view bytes);

}  // namespace nightshift
