// Block: the rows in the engine and those that wait to join, with what they have generated. A row
// of several choices becomes one engine request for each; it is one row again when all have ended.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#include "engine/engine.h"
#include "kernels/base/clock.h"
#include "server/input/result_builder.h"
#include "server/metrics/metrics.h"
#include "server/scheduling/block_former.h"
#include "server/scheduling/job_context.h"
#include "server/scheduling/model_session.h"
#include "server/scheduling/output_lengths.h"
#include "server/scheduling/progress.h"
#include "server/scheduling/request_preparer.h"
#include "server/scheduling/scored_choices.h"
#include "server/store/job_store.h"

namespace nightshift {

// A row between its preparation and its result.
struct BlockRow {
  JobContextPtr job;
  ResultHeader header;
  int32_t attempt = 1;
  double share_tag = 0;
  int64_t joined_us = 0;        // monotonic clock; 0: not yet
  std::vector<uint64_t> pages;  // HashPages of its prompt
  int64_t prompt_tokens = 0;
  uint64_t seed = 0;
  bool want_logprobs = false;
  // The choices, where they are scored; what was found out of one is in its ChoiceProgress, as if
  // it had been generated.
  std::vector<ScoredContinuation> scored;
  std::optional<std::string> echoed_prompt;
  std::vector<TokenLogprob> prompt_logprobs;  // once the first choice has ended, if wanted
  int64_t cached_tokens = 0;                  // of its prompt, once it has ended in this run
  std::vector<ChoiceProgress> choices;

  bool keeps_logprobs() const { return want_logprobs || !scored.empty(); }
};

// What one sweep did.
struct BlockSweep {
  int64_t tokens = 0;             // of prompts and outputs
  int64_t shared_tokens = 0;      // of prompts, taken from others
  std::set<std::string> job_ids;  // of the rows that the engine held
  SweepTimes times;
  std::vector<StepTimes> steps;
  int64_t sampled_tokens = 0;
  std::vector<ComputedSpan> spans;
  int64_t kv_pages = 0;  // as the engine's SweepResult
};

// Tokens of a job's rows in the block that need not be computed again.
struct DoneTokens {
  int64_t prompt = 0;
  int64_t output = 0;
};

// Drives one session's engine. One thread; what it is given must outlive it.
class Block {
 public:
  Block(const ModelSession& session, OutputLengths& lengths, const Clock& clock, Metrics& metrics)
      : session_(session), lengths_(lengths), clock_(clock), metrics_(metrics) {}

  // A prepared row (its status OK) waits to join, and continues what an earlier run had generated
  // with this model and numeric mode. Choices that had ended are not run again.
  void Add(PreparedRow prepared);
  // Lets rows join, as FormBlock and the engine allow; held ones of lower priority make room for
  // those that wait. Those that can never run here get their result.
  void Admit(std::vector<FinishedRow>& finished);
  // One sweep; finished rows get their result, evicted ones wait again. On an error nothing was
  // sampled: the engine's state is unknown, and all rows stay here to be taken.
  absl::StatusOr<BlockSweep> Sweep(std::vector<FinishedRow>& finished);

  // The engine goes on under another plan; what has no room any more waits again. Errors: as the
  // engine's, where rows stay as on an error of Sweep.
  absl::Status ApplyPlan(const EngineOptions& options);

  // Takes rows out: those of a job, those of which the engine holds a choice, or all.
  std::vector<BlockRow> TakeJob(const std::string& job_id);
  std::vector<BlockRow> TakeHeld();
  std::vector<BlockRow> TakeAll();
  // What held and evicted rows have generated, for the store.
  std::vector<RowProgress> Progress() const;
  RowProgress ProgressOf(const BlockRow& row) const;

  // Engine requests: the choices of the rows.
  int64_t num_held() const { return static_cast<int64_t>(held_.size()); }
  // Of those: prompt and generated tokens.
  int64_t held_tokens() const;
  int64_t num_waiting() const { return static_cast<int64_t>(waiting_.size()); }
  // By job: of prompts that have begun to generate, and generated; of held and waiting rows.
  std::map<std::string, DoneTokens> done_tokens() const;
  // Prompt and generated tokens of those that wait.
  int64_t waiting_tokens() const;
  // The highest share tag of a row that joined.
  double served_tag() const { return served_tag_; }

 private:
  // Which choice of which of rows_.
  struct ChoiceKey {
    uint64_t row = 0;
    size_t choice = 0;
  };
  struct WaitingChoice {
    ChoiceKey key;
    EngineRequest request;
  };

  BlockRow& RowOf(const ChoiceKey& key);
  ChoiceProgress& ChoiceOf(const ChoiceKey& key) { return RowOf(key).choices[key.choice]; }
  const BlockRow& RowOf(const ChoiceKey& key) const;
  int64_t KnownTokens(const ChoiceKey& key) const;

  std::vector<size_t> ChooseJoining() const;
  BlockCandidate CandidateOf(const WaitingChoice& waiting) const;
  // Suspends held rows for waiting ones of higher priority; true when it did.
  bool MakeRoom();
  // Rows that the engine gave back wait again.
  void WaitAgain(std::vector<EngineRequest> requests);
  void RestoreProgress(const std::string& stored, BlockRow& row) const;
  // Offers those that may join; true when one of them starts anew and should be offered again.
  bool Offer(std::vector<FinishedRow>& finished);
  // True when the choice left the waiting ones: for the engine, or because its row has a result.
  bool TakeOutcome(WaitingChoice& waiting, const absl::Status& status,
                   std::vector<FinishedRow>& finished);
  // Which choice's request tells of this one too: scored choices of one token are told by the first
  // of them, since the same row of the prompt knows all.
  static size_t SpeakerOf(const BlockRow& row, size_t choice);
  // What the request of a scored choice found out.
  static void TakeScores(std::vector<TokenLogprob> tokens, size_t speaker, BlockRow& row);
  // The request of a choice that waits to join.
  static EngineRequest RequestOf(const BlockRow& row, size_t choice, const EngineRequest& first);
  void TakeRecord(SweepRecord record, std::vector<FinishedRow>& finished);
  FinishedRow Complete(BlockRow row) const;
  // The row joins in its job's first turn: whose tag that is waits for the turn that was the row's.
  void TakeTurn(BlockRow& row);
  // Measures how long it has waited, once.
  void NoteJoined(BlockRow& row) const;
  // Drops a row that has its result; its waiting choices are the caller's to drop.
  void RetireRow(uint64_t row);
  // Takes rows out, their held and waiting choices too.
  std::vector<BlockRow> TakeRows(const std::set<uint64_t>& keys);

  const ModelSession& session_;
  OutputLengths& lengths_;
  const Clock& clock_;
  Metrics& metrics_;
  double served_tag_ = 0;
  uint64_t next_row_ = 1;
  uint64_t next_id_ = 1;
  std::map<uint64_t, BlockRow> rows_;
  std::map<uint64_t, ChoiceKey> held_;  // by id of the engine's request
  std::vector<WaitingChoice> waiting_;
};

// A row's error as its result.
FinishedRow FailRow(const JobContext& job, const ResultHeader& header, const absl::Status& error);

}  // namespace nightshift
