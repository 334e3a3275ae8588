#include "server/scheduling/time_left.h"

#include <algorithm>
#include <limits>

#include "server/scheduling/model_choice.h"

namespace nightshift {
namespace {

// The plan's word counts as much as so many predicted seconds of sweeps.
constexpr double kPriorSeconds = 2.0;
// Sweeps before about so many predicted seconds are forgotten.
constexpr double kMemorySeconds = 300.0;
constexpr double kLeastUncertainty = 0.1;
constexpr double kFirstUncertainty = 0.25;  // beside the least

constexpr double kNever = std::numeric_limits<double>::infinity();
constexpr double kMicro = 1e-6;
// Turns of the engine that are looked at: three months of slices of half an hour.
constexpr int kMostTurns = 4096;

// The queue in virtual time.
class QueueRun {
 public:
  QueueRun(std::span<const JobLeft> jobs, const QueueState& state, double TimeLeft::*which)
      : jobs_(jobs),
        state_(state),
        models_(state.models),
        loaded_(state.loaded),
        slice_left_(state.slice_left_seconds),
        next_change_(jobs.size(), 0.0),
        ends_(jobs.size(), kNever) {
    for (const JobLeft& job : jobs) {
      left_.push_back(job.alone.*which);
      demand_.push_back({.key = models_[job.model].key, .priority = job.priority});
    }
    for (const QueuedModel& model : models_) {
      last_load_us_ = std::max(last_load_us_, model.loaded_us);
    }
  }

  // When each job ends, in seconds from now; never for those that are not reached.
  const std::vector<double>& Ends() {
    for (int turn = 0; turn < kMostTurns && Turn(); ++turn) {
    }
    return ends_;
  }

 private:
  // Up to where the engine may go to others: false when nothing is left that will ever run.
  bool Turn() {
    const double change = LookAtCalendars();
    const auto chosen =
        ChooseModel(demand_, LoadedKey(), loaded_.has_value() && slice_left_ <= 0.0);
    const bool has_work = std::any_of(demand_.begin(), demand_.end(),
                                      [](const JobDemand& job) { return job.has_work; });
    if (!has_work || !chosen.has_value()) {
      now_ = change;
      return now_ < kNever;
    }
    if (chosen != LoadedKey()) {
      Load(*chosen);
      return true;
    }
    double most = change - now_;
    if (OthersWait() && slice_left_ > 0.0) {
      most = std::min(most, slice_left_);
    }
    Share(most);
    return true;
  }

  std::optional<ModelKey> LoadedKey() const {
    return loaded_.has_value() ? std::optional(models_[*loaded_].key) : std::nullopt;
  }

  // Sets who may run; when that changes next.
  double LookAtCalendars() {
    double next = kNever;
    for (size_t i = 0; i < jobs_.size(); ++i) {
      const bool is_left = ends_[i] == kNever;
      if (!is_left) {
        demand_[i].has_work = false;
        continue;
      }
      if (next_change_[i] <= now_) {
        const int64_t now_us = state_.now_us + static_cast<int64_t>(now_ / kMicro);
        const JobCalendar* calendar = jobs_[i].calendar;
        demand_[i].has_work = calendar == nullptr || calendar->MayRun(now_us);
        const int64_t change_us = calendar == nullptr ? kNeverUs : calendar->NextChange(now_us);
        // A change is at least a microsecond away.
        next_change_[i] =
            change_us == kNeverUs
                ? kNever
                : std::max(static_cast<double>(change_us - state_.now_us) * kMicro, now_ + kMicro);
      }
      next = std::min(next, next_change_[i]);
    }
    for (size_t i = 0; i < jobs_.size(); ++i) {
      demand_[i].model_loaded_us = models_[jobs_[i].model].loaded_us;
    }
    return next;
  }

  void Load(const ModelKey& key) {
    const auto found = std::find_if(models_.begin(), models_.end(),
                                    [&](const QueuedModel& model) { return model.key == key; });
    loaded_ = static_cast<size_t>(found - models_.begin());
    found->loaded_us = ++last_load_us_;
    now_ += found->load_seconds;
    const auto micros = [](double seconds) { return static_cast<int64_t>(seconds / kMicro); };
    slice_left_ = kMicro * static_cast<double>(
                               SliceOf(micros(state_.slice_seconds), micros(found->load_seconds)));
  }

  bool RunsNow(size_t i) const { return demand_[i].has_work && jobs_[i].model == *loaded_; }

  // For another model, which gets the engine when the slice is over.
  bool OthersWait() const {
    const int32_t highest = HighestOfLoaded();
    return std::any_of(demand_.begin(), demand_.end(), [&](const JobDemand& job) {
      return job.has_work && job.priority >= highest && !(job.key == models_[*loaded_].key);
    });
  }

  int32_t HighestOfLoaded() const {
    int32_t highest = std::numeric_limits<int32_t>::min();
    for (size_t i = 0; i < jobs_.size(); ++i) {
      highest = RunsNow(i) ? std::max(highest, jobs_[i].priority) : highest;
    }
    return highest;
  }

  // Gives the engine to the loaded model's jobs of the highest priority, for at most so long.
  void Share(double most_seconds) {
    const int32_t highest = HighestOfLoaded();
    std::vector<size_t> sharing;
    for (size_t i = 0; i < jobs_.size(); ++i) {
      if (RunsNow(i) && jobs_[i].priority == highest) {
        sharing.push_back(i);
      }
    }
    std::sort(sharing.begin(), sharing.end(),
              [&](size_t a, size_t b) { return left_[a] < left_[b]; });
    double spent = 0.0;  // by all of them
    double each = 0.0;   // of that, by each that is left
    size_t ended = 0;
    for (; ended < sharing.size(); ++ended) {
      const size_t job = sharing[ended];
      const double needed = (left_[job] - each) * static_cast<double>(sharing.size() - ended);
      if (spent + needed > most_seconds) {
        break;
      }
      spent += needed;
      each = left_[job];
      ends_[job] = now_ + spent;
    }
    if (ended < sharing.size()) {
      each += (most_seconds - spent) / static_cast<double>(sharing.size() - ended);
      spent = most_seconds;
    }
    for (; ended < sharing.size(); ++ended) {
      left_[sharing[ended]] -= each;
    }
    now_ += spent;
    slice_left_ -= spent;
  }

  const std::span<const JobLeft> jobs_;
  const QueueState& state_;
  std::vector<QueuedModel> models_;
  std::optional<size_t> loaded_;
  double slice_left_;
  double now_ = 0.0;  // seconds from state_.now_us
  int64_t last_load_us_ = 0;
  std::vector<double> left_;
  std::vector<JobDemand> demand_;
  std::vector<double> next_change_;  // of whether the job may run
  std::vector<double> ends_;
};

}  // namespace

void Pace::Add(double predicted_seconds, double observed_seconds) {
  predicted_seconds_ += predicted_seconds;
  observed_seconds_ += observed_seconds;
  if (predicted_seconds_ > kMemorySeconds) {
    observed_seconds_ *= kMemorySeconds / predicted_seconds_;
    predicted_seconds_ = kMemorySeconds;
  }
}

double Pace::ratio() const {
  return (kPriorSeconds + observed_seconds_) / (kPriorSeconds + predicted_seconds_);
}

double Pace::uncertainty() const {
  return kLeastUncertainty +
         kFirstUncertainty * kPriorSeconds / (kPriorSeconds + predicted_seconds_);
}

std::map<std::string, TimeLeft> TimesLeft(std::span<const JobLeft> jobs, const QueueState& state) {
  const std::vector<double> likely = QueueRun(jobs, state, &TimeLeft::seconds).Ends();
  const std::vector<double> least = QueueRun(jobs, state, &TimeLeft::least_seconds).Ends();
  const std::vector<double> most = QueueRun(jobs, state, &TimeLeft::most_seconds).Ends();
  std::map<std::string, TimeLeft> times;
  for (size_t i = 0; i < jobs.size(); ++i) {
    if (most[i] < kNever && likely[i] < kNever && least[i] < kNever) {
      // More work ahead may end a slice earlier.
      times[jobs[i].id] = {.seconds = likely[i],
                           .least_seconds = std::min(least[i], likely[i]),
                           .most_seconds = std::max(most[i], likely[i])};
    }
  }
  return times;
}

}  // namespace nightshift
