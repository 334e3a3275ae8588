// How config.json of each family is read beyond the parts that all families share.
#pragma once

#include <nlohmann/json_fwd.hpp>

#include "engine/model/families.h"
#include "engine/model/strict_json.h"

namespace nightshift {

// Each completes `model`, whose sizes are read and whose shape (family_shapes.h) is set. `reader`
// is over `config_json` and keeps the first problem.
void ReadLlamaConfig(JsonReader& reader, const nlohmann::json& config_json, SourceModel& model);
void ReadMistralConfig(JsonReader& reader, const nlohmann::json& config_json, SourceModel& model);
void ReadQwen2Config(JsonReader& reader, const nlohmann::json& config_json, SourceModel& model);
void ReadQwen3Config(JsonReader& reader, const nlohmann::json& config_json, SourceModel& model);
void ReadMixtralConfig(JsonReader& reader, const nlohmann::json& config_json, SourceModel& model);
void ReadQwen3MoeConfig(JsonReader& reader, const nlohmann::json& config_json, SourceModel& model);
void ReadGemma2Config(JsonReader& reader, const nlohmann::json& config_json, SourceModel& model);
void ReadGemma3Config(JsonReader& reader, const nlohmann::json& config_json, SourceModel& model);
void ReadPhi3Config(JsonReader& reader, const nlohmann::json& config_json, SourceModel& model);
void ReadOlmo2Config(JsonReader& reader, const nlohmann::json& config_json, SourceModel& model);
void ReadGraniteConfig(JsonReader& reader, const nlohmann::json& config_json, SourceModel& model);
void ReadStableLmConfig(JsonReader& reader, const nlohmann::json& config_json, SourceModel& model);
void ReadGptNeoXConfig(JsonReader& reader, const nlohmann::json& config_json, SourceModel& model);
void ReadFalconConfig(JsonReader& reader, const nlohmann::json& config_json, SourceModel& model);
void ReadOptConfig(JsonReader& reader, const nlohmann::json& config_json, SourceModel& model);

}  // namespace nightshift
