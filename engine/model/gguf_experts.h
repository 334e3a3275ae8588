// What GGUF says of a mixture of experts.
#pragma once

#include <cstdint>

#include "engine/model/config.h"
#include "engine/model/gguf_keys.h"

namespace nightshift {

// For a file of `num_experts` experts a layer, above 0. Layers have experts where the file has a
// router for them; `config` has the sizes of the model. `keys` keeps what is wrong.
ExpertConfig ReadGgufExperts(int64_t num_experts, const GgufCheckpoint& checkpoint,
                             const ModelConfig& config, GgufKeys& keys);

}  // namespace nightshift
