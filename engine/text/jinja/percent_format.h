// Python's old string formatting: "%s of %5.1f" % values, and the filter format.
#pragma once

#include "absl/status/statusor.h"

#include "engine/text/jinja/budget.h"
#include "engine/text/jinja/origin_text.h"
#include "engine/text/jinja/value.h"

namespace nightshift {

// `values` is a tuple of the values, a mapping for "%(name)s", or the one value. Numbers that it
// writes are not trusted, text keeps its origin.
// Errors: INVALID_ARGUMENT where Python raises, and for the conversion a; RESOURCE_EXHAUSTED.
absl::StatusOr<OriginText> FormatPercent(const OriginText& format, const JinjaValue& values,
                                         JinjaBudget& budget);

}  // namespace nightshift
