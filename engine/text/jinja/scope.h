// JinjaScope: the names of one frame of a template (the whole, a pass of a loop, a macro's call).
#pragma once

#include <memory>
#include <string>

#include "absl/container/flat_hash_map.h"

#include "engine/text/jinja/value.h"

namespace nightshift {

struct JinjaStatement;

struct JinjaScope {
  absl::flat_hash_map<std::string, JinjaValue> names;
  std::shared_ptr<JinjaScope> outer;  // shared: macros keep the scopes that they were made in
};

// {% macro %}: what to run, and where its free names are looked up when it is called.
struct JinjaMacro {
  const JinjaStatement* definition = nullptr;
  // The evaluator keeps it alive; a macro that kept its own scope would keep itself.
  std::weak_ptr<JinjaScope> scope;
};

}  // namespace nightshift
