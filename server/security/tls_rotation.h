// TlsRotation: which certificate the daemon serves with. gRPC watches a folder and takes whatever
// lies there, and then refuses every client when that is wrong; so only pairs that were checked get
// there.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#include "kernels/base/clock.h"
#include "kernels/base/mutex.h"
#include "server/security/tls_pair.h"

namespace nightshift {

// What monitoring is told.
struct TlsState {
  int64_t expire_time_us = 0;  // of what is served, as TlsPair's
  std::string problem;         // why the files are not served; empty: they are
};

// Thread-safe.
class TlsRotation {
 public:
  // Checks the pair and lays it into `folder` (made, mode 0700; what an earlier run left there
  // goes). `clock` must outlive it. Errors: as ReadTlsPair; FAILED_PRECONDITION (the folder).
  static absl::StatusOr<std::unique_ptr<TlsRotation>> Create(TlsFiles files, std::string folder,
                                                             const Clock& clock);

  // Reads the files again. A pair that has changed and is good takes the place of the one before
  // for new connections, within seconds; a bad one changes nothing, and is logged when it is first
  // met.
  void Reload();

  // What gRPC is to watch. All three change at once.
  TlsFiles served() const;
  TlsState state() const;

 private:
  TlsRotation(TlsFiles files, std::string folder, const Clock& clock)
      : files_(std::move(files)), folder_(std::move(folder)), clock_(clock) {}
  // Lays the pair aside and then turns a link to it, which is one step.
  absl::Status Serve(const TlsPair& pair) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const TlsFiles files_;
  const std::string folder_;
  const Clock& clock_;
  mutable Mutex mutex_;
  TlsPair pair_ ABSL_GUARDED_BY(mutex_);
  std::string problem_ ABSL_GUARDED_BY(mutex_);  // as it was logged; empty: the files are served
  int64_t num_served_ ABSL_GUARDED_BY(mutex_) = 0;
};

}  // namespace nightshift
