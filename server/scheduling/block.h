// Block: the requests in the engine and those that wait to join, with what they have generated.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#include "engine/engine.h"
#include "server/input/result_builder.h"
#include "server/scheduling/job_context.h"
#include "server/scheduling/model_session.h"
#include "server/scheduling/request_preparer.h"
#include "server/store/job_store.h"

namespace nightshift {

// A row between its preparation and its result.
struct BlockRow {
  JobContextPtr job;
  ResultHeader header;
  int32_t attempt = 1;
  int64_t prompt_tokens = 0;
  uint64_t seed = 0;
  bool want_logprobs = false;
  std::vector<TokenLogprob> generated;
};

// Tokens that went through one sweep.
struct SweepTokens {
  int64_t prompt = 0;
  int64_t output = 0;
};

// Drives one session's engine. One thread; `session` must outlive it.
class Block {
 public:
  explicit Block(const ModelSession& session) : session_(session) {}

  // A prepared row (its status OK) waits to join, and continues what an earlier run had generated
  // with this model and numeric mode.
  void Add(PreparedRow prepared);
  // Lets rows join, as FormBlock and the engine allow. Those that can never run here get their
  // result.
  void Admit(std::vector<FinishedRow>& finished);
  // One sweep; finished rows get their result, evicted ones wait again. On an error nothing was
  // sampled: the engine's state is unknown, and all rows stay here to be taken.
  absl::StatusOr<SweepTokens> Sweep(std::vector<FinishedRow>& finished);

  // Takes rows out: those of a job, those held by the engine, or all.
  std::vector<BlockRow> TakeJob(const std::string& job_id);
  std::vector<BlockRow> TakeHeld();
  std::vector<BlockRow> TakeAll();
  // What held and evicted rows have generated, for the store.
  std::vector<RowProgress> Progress() const;
  RowProgress ProgressOf(const BlockRow& row) const;

  int64_t num_held() const { return static_cast<int64_t>(held_.size()); }
  int64_t num_waiting() const { return static_cast<int64_t>(waiting_.size()); }
  // Prompt and generated tokens of those that wait.
  int64_t waiting_tokens() const;

 private:
  struct WaitingRow {
    BlockRow row;
    EngineRequest request;
  };

  std::vector<size_t> ChooseJoining() const;
  void RestoreProgress(const std::string& stored, WaitingRow& waiting) const;
  // Offers those that may join; true when one of them starts anew and should be offered again.
  bool Offer(std::vector<FinishedRow>& finished);
  // True when the row left the waiting ones, for the engine or with a result.
  bool TakeOutcome(WaitingRow& waiting, const absl::Status& status,
                   std::vector<FinishedRow>& finished);
  void TakeRecord(SweepRecord record, std::vector<FinishedRow>& finished);
  FinishedRow Complete(const BlockRow& row, SweepRecord record) const;

  const ModelSession& session_;
  uint64_t next_id_ = 1;
  std::map<uint64_t, BlockRow> held_;
  std::vector<WaitingRow> waiting_;
};

// A row's error as its result.
FinishedRow FailRow(const std::string& job_id, const ResultHeader& header,
                    const absl::Status& error);

}  // namespace nightshift
