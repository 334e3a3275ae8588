// What GGUF says of single families beyond the keys that all read alike (gguf_config.h).
#pragma once

#include "engine/model/config.h"
#include "engine/model/gguf_keys.h"

namespace nightshift {

// Each completes a configuration whose sizes, shape, rotation and window are read.
void CompleteGemmaFromGguf(GgufKeys& keys, ModelConfig& config);
void CompleteGemma3FromGguf(GgufKeys& keys, ModelConfig& config);
void CompleteGraniteFromGguf(GgufKeys& keys, ModelConfig& config);
void CompleteStableLmFromGguf(GgufKeys& keys, ModelConfig& config);
void CompleteGptNeoXFromGguf(GgufKeys& keys, ModelConfig& config);

}  // namespace nightshift
