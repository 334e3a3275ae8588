#include "server/scheduling/model_waits.h"

#include <iterator>
#include <utility>

#include "kernels/base/log.h"

namespace nightshift {
namespace {

bool TellsOfAway(const absl::Status& found) {
  return absl::IsNotFound(found) || absl::IsUnavailable(found);
}

}  // namespace

ModelWaits::ModelWaits(int64_t interval_us, ModelCatalog& catalog, const Clock& clock,
                       std::function<void()> on_away)
    : interval_us_(interval_us), catalog_(catalog), clock_(clock), on_away_(std::move(on_away)) {}

bool ModelWaits::IsAway(const std::string& model) {
  catalog_.Rescan();
  const absl::Status found = catalog_.Find(model).status();
  {
    MutexLock lock(mutex_);
    const bool was_away = away_.count(model) != 0;
    if (found.ok() || (!was_away && !TellsOfAway(found))) {
      return false;
    }
    away_[model].why = std::string(found.message());
    if (was_away) {
      return true;
    }
    if (next_look_us_ == INT64_MAX) {
      next_look_us_ = clock_.MonotonicMicros() + interval_us_;
    }
  }
  LOG(WARNING) << "model_waits model=" << model << " retry_us=" << interval_us_ << " reason=\""
               << found.message() << "\"";
  on_away_();
  return true;
}

bool ModelWaits::IsNoted(const std::string& model) const {
  MutexLock lock(mutex_);
  return away_.count(model) != 0;
}

int64_t ModelWaits::NextLook() const {
  MutexLock lock(mutex_);
  return next_look_us_;
}

bool ModelWaits::Look(const std::set<std::string>& needed) {
  catalog_.Rescan();
  std::map<std::string, absl::Status> found;
  for (const std::string& model : needed) {
    found[model] = catalog_.Find(model).status();
  }
  std::set<std::string> back;
  {
    MutexLock lock(mutex_);
    for (auto entry = away_.begin(); entry != away_.end();) {
      auto& [model, away] = *entry;
      const auto seen = found.find(model);
      if (seen != found.end() && seen->second.ok()) {
        back.insert(model);
      } else if (seen != found.end()) {
        away.why = std::string(seen->second.message());
      }
      // One that was noted a moment ago may be of a job that the caller has not heard of.
      const bool is_over = seen == found.end() ? away.was_looked_for : seen->second.ok();
      away.was_looked_for = true;
      entry = is_over ? away_.erase(entry) : std::next(entry);
    }
    next_look_us_ = away_.empty() ? INT64_MAX : clock_.MonotonicMicros() + interval_us_;
  }
  for (const std::string& model : back) {
    LOG(INFO) << "model_back model=" << model;
  }
  return !back.empty();
}

void ModelWaits::NoteLoad(const std::string& model, const absl::Status& why) {
  MutexLock lock(mutex_);
  loading_ = model;
  why_not_loaded_ = std::string(why.message());
}

void ModelWaits::ClearLoad() {
  MutexLock lock(mutex_);
  loading_.clear();
}

std::map<std::string, std::string> ModelWaits::Reasons() const {
  MutexLock lock(mutex_);
  std::map<std::string, std::string> reasons;
  if (!loading_.empty()) {
    reasons[loading_] = why_not_loaded_;
  }
  for (const auto& [model, away] : away_) {
    reasons[model] = away.why;
  }
  return reasons;
}

}  // namespace nightshift
