// JinjaBudget: what one rendering may still spend. Every loop over elements and every pass over
// text pays here before it runs, so that no template and no message can run long or grow large.
#pragma once

#include <cstddef>
#include <cstdint>

#include "absl/status/status.h"

namespace nightshift {

class JinjaBudget {
 public:
  JinjaBudget(int64_t max_steps, int64_t max_work_bytes)
      : max_steps_(max_steps),
        max_work_bytes_(max_work_bytes),
        steps_(max_steps),
        work_bytes_(max_work_bytes) {}

  // Pays for evaluated nodes and visited elements. Errors: RESOURCE_EXHAUSTED naming the limit.
  absl::Status SpendSteps(size_t count);
  // Pays for elements of a list that are copied, which is far cheaper than evaluating a node.
  absl::Status SpendElements(size_t count);
  // Pays for bytes of text read or made. Errors: as above.
  absl::Status SpendBytes(size_t count);

 private:
  int64_t max_steps_;
  int64_t max_work_bytes_;
  int64_t steps_;
  int64_t work_bytes_;
};

}  // namespace nightshift
