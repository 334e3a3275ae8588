// ModelWaits: models that accepted jobs need and that are away at present, such as on a disk that
// is not mounted, and when their packs are looked for again.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <set>
#include <string>

#include "absl/status/status.h"

#include "kernels/base/clock.h"
#include "kernels/base/mutex.h"
#include "server/scheduling/model_catalog.h"

namespace nightshift {

// A model that was found away stays so until its whole pack is there: a pack that is copied back is
// for a while one of too few bytes. Thread-safe.
class ModelWaits {
 public:
  // `on_away` is called when a model is found away; short, must not block. All must outlive it.
  ModelWaits(int64_t interval_us, ModelCatalog& catalog, const Clock& clock,
             std::function<void()> on_away);

  // Looks for the pack of a model whose use has brought an error, and notes it if it is away.
  bool IsAway(const std::string& model);
  // As it was last seen.
  bool IsNoted(const std::string& model) const;
  // When packs are looked for again, by the monotonic clock; INT64_MAX while none is away.
  int64_t NextLook() const;
  // Looks for them now. `needed`: the models of jobs that are not ending; the others are forgotten.
  // True when a pack is back.
  bool Look(const std::set<std::string>& needed);

  // The one model whose load is tried again, and why it must be: it is there and has no room.
  void NoteLoad(const std::string& model, const absl::Status& why);
  void ClearLoad();

  // What is waited for, by model.
  std::map<std::string, std::string> Reasons() const;

 private:
  struct Away {
    std::string why;
    bool was_looked_for = false;  // since it was noted
  };

  const int64_t interval_us_;
  ModelCatalog& catalog_;
  const Clock& clock_;
  const std::function<void()> on_away_;
  mutable Mutex mutex_;
  std::map<std::string, Away> away_ ABSL_GUARDED_BY(mutex_);
  int64_t next_look_us_ ABSL_GUARDED_BY(mutex_) = INT64_MAX;
  std::string loading_ ABSL_GUARDED_BY(mutex_);  // empty: none
  std::string why_not_loaded_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace nightshift
