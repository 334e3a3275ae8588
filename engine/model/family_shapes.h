// What is the same for every model of a family and stands in no file: which norms and where, which
// positions, how the branches go together.
#pragma once

#include "engine/model/config.h"

namespace nightshift {

// Each sets its fields of a fresh configuration whose sizes are known; both readers (Hugging Face,
// GGUF) call it before they read what the file says.
void SetLlamaShape(ModelConfig& config);  // also Mistral, Qwen2, Phi-3, Granite
void SetQwen3Shape(ModelConfig& config);
void SetGemma2Shape(ModelConfig& config);
void SetGemma3Shape(ModelConfig& config);
void SetOlmo2Shape(ModelConfig& config);
void SetStableLmShape(ModelConfig& config);
void SetGptNeoXShape(ModelConfig& config);
void SetFalconShape(ModelConfig& config);
void SetOptShape(ModelConfig& config);

}  // namespace nightshift
