#include "server/scheduling/claim_window.h"

#include <algorithm>
#include <optional>
#include <span>
#include <utility>

#include "kernels/base/log.h"
#include "kernels/base/status_macros.h"
#include "server/scheduling/request_options.h"
#include "server/scheduling/row_order.h"

namespace nightshift {
namespace {

// Of one read of the store, and of the kept shapes.
constexpr int64_t kRowsPerRead = 4096;
// Of text, for prompts of which nothing else is known.
constexpr int64_t kBytesPerToken = 4;

// Shapes of a job's rows, read in pieces as its rows come in order.
class ShapeReader {
 public:
  ShapeReader(KeptPrompts& kept, const RowSearch& search) : kept_(kept), search_(search) {}

  PromptShape Of(const StoredRow& row) {
    const auto place = static_cast<size_t>(row.index - first_);
    if (first_ < 0 || place >= shapes_.size()) {
      first_ = row.index;
      const int64_t count = std::min(kRowsPerRead, search_.job->num_rows - first_);
      shapes_ = kept_.FindShapes({.job_uid = search_.job->uid,
                                  .job_rows = search_.job->num_rows,
                                  .index = first_,
                                  .text_digest = search_.text_digest},
                                 count);
    }
    const std::optional<PromptShape>& shape = shapes_[static_cast<size_t>(row.index - first_)];
    return shape.has_value() ? *shape : Guess(row);
  }

 private:
  PromptShape Guess(const StoredRow& row) const {
    const v1::SamplingOptions& sampling = search_.job->spec.sampling();
    return {.prompt_tokens = row.length / kBytesPerToken + 1,
            .max_output_tokens = sampling.has_max_output_tokens() ? sampling.max_output_tokens()
                                                                  : kDefaultMaxOutputTokens};
  }

  KeptPrompts& kept_;
  const RowSearch& search_;
  int64_t first_ = -1;
  std::vector<std::optional<PromptShape>> shapes_;
};

}  // namespace

absl::StatusOr<FoundRows> FindRows(const RowSearch& search, JobStore& store, KeptPrompts& kept) {
  constexpr size_t kPages = kShapePages.size();
  FoundRows found = {.indices = {}, .next_index = search.first_index};
  std::vector<OrderedRow> rows;
  std::vector<uint64_t> pages;  // kPages of each row
  std::vector<size_t> num_pages;
  ShapeReader shapes(kept, search);
  while (static_cast<int64_t>(rows.size()) < search.limit) {
    const int64_t wanted =
        std::min(kRowsPerRead, search.limit - static_cast<int64_t>(rows.size()));
    ASSIGN_OR_RETURN(const std::vector<StoredRow> piece,
                     store.NeverClaimed(search.job->job_id, found.next_index, search.end_index,
                                        wanted));
    for (const StoredRow& row : piece) {
      const PromptShape shape = shapes.Of(row);
      const int64_t output_tokens = search.lengths.Predict(
          search.job->job_id, shape.prompt_tokens, shape.max_output_tokens);
      rows.push_back({.predicted_tokens = shape.prompt_tokens + output_tokens,
                      .index = row.index});
      pages.insert(pages.end(), shape.pages.begin(), shape.pages.end());
      num_pages.push_back(static_cast<size_t>(
          std::find(shape.pages.begin(), shape.pages.end(), 0U) - shape.pages.begin()));
    }
    const bool is_last = static_cast<int64_t>(piece.size()) < wanted;
    found.next_index = is_last ? search.end_index : piece.back().index + 1;
    if (is_last) {
      break;
    }
  }
  for (size_t i = 0; i < rows.size(); ++i) {
    rows[i].pages = std::span(pages).subspan(i * kPages, num_pages[i]);
  }
  for (const size_t i : LongestFirst(rows)) {
    found.indices.push_back(rows[i].index);
  }
  return found;
}

ClaimWindow::~ClaimWindow() {
  MutexLock lock(mutex_);
  while (num_searches_ > 0) {
    searched_.Wait(mutex_);
  }
}

void ClaimWindow::LookAhead(JobContextPtr job, int64_t checked, uint64_t text_digest,
                            const OutputLengths& lengths, int64_t num_jobs) {
  // Half of the window is what waits, half what is looked for.
  const int64_t most = std::max<int64_t>(1, max_rows_ / 2);
  const int64_t limit = std::clamp(most / std::max<int64_t>(1, num_jobs),
                                   std::min(kLeastRows, most), most);
  std::shared_ptr<Rows> rows;
  {
    MutexLock lock(mutex_);
    std::shared_ptr<Rows>& of_job = jobs_[job->job_id];
    if (of_job == nullptr) {
      of_job = std::make_shared<Rows>();
    }
    const int64_t waiting = static_cast<int64_t>(of_job->indices.size());
    if (of_job->is_searching || of_job->next_index >= checked || waiting > limit / 2) {
      return;
    }
    of_job->is_searching = true;
    ++num_searches_;
    rows = of_job;
  }
  RowSearch search = {.job = std::move(job),
                      .text_digest = text_digest,
                      .lengths = lengths,
                      .first_index = rows->next_index,
                      .end_index = checked,
                      .limit = limit};
  const absl::Status queued =
      store_.Read([this, search = std::move(search), rows](JobStore& store) {
        Search(search, rows, store);
      });
  if (!queued.ok()) {
    MutexLock lock(mutex_);  // readers are busy: the next step tries again
    rows->is_searching = false;
    --num_searches_;
  }
}

void ClaimWindow::Search(const RowSearch& search, const std::shared_ptr<Rows>& rows,
                         JobStore& store) {
  absl::StatusOr<FoundRows> found = FindRows(search, store, kept_);
  if (!found.ok()) {
    LOG(WARNING) << "rows_not_ordered job=" << search.job->job_id << " error=\""
                 << found.status().message() << "\" effect=\"they run in the input's order\"";
    found = FoundRows{.indices = {}, .next_index = search.end_index};
  }
  // All under the lock: after it the window may be gone.
  MutexLock lock(mutex_);
  rows->indices.insert(rows->indices.end(), found->indices.begin(), found->indices.end());
  rows->next_index = found->next_index;
  rows->is_searching = false;
  --num_searches_;
  wakeup_.Notify();
  searched_.NotifyAll();
}

bool ClaimWindow::MustWait(const std::string& job_id, int64_t limit) {
  MutexLock lock(mutex_);
  const auto found = jobs_.find(job_id);
  return found != jobs_.end() && found->second->is_searching &&
         static_cast<int64_t>(found->second->indices.size()) < limit;
}

std::vector<int64_t> ClaimWindow::Take(const std::string& job_id, int64_t limit) {
  MutexLock lock(mutex_);
  std::vector<int64_t> taken;
  const auto found = jobs_.find(job_id);
  if (found == jobs_.end()) {
    return taken;
  }
  std::deque<int64_t>& indices = found->second->indices;
  const auto end = indices.begin() + std::min<int64_t>(limit, static_cast<int64_t>(indices.size()));
  taken.assign(indices.begin(), end);
  indices.erase(indices.begin(), end);
  return taken;
}

void ClaimWindow::PutBack(const std::string& job_id, const std::vector<int64_t>& rows) {
  MutexLock lock(mutex_);
  const auto found = jobs_.find(job_id);
  if (found != jobs_.end()) {
    std::deque<int64_t>& indices = found->second->indices;
    indices.insert(indices.begin(), rows.begin(), rows.end());
  }
}

void ClaimWindow::Forget(const std::string& job_id) {
  MutexLock lock(mutex_);
  jobs_.erase(job_id);
}

void ClaimWindow::Clear() {
  MutexLock lock(mutex_);
  jobs_.clear();
}

}  // namespace nightshift
