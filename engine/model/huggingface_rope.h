// How config.json describes rotation and sliding windows.
#pragma once

#include <cstdint>
#include <functional>

#include <nlohmann/json_fwd.hpp>

#include "engine/model/families.h"
#include "engine/model/strict_json.h"

namespace nightshift {

// Reads `rope_theta` with `rope_scaling`, or `rope_parameters`, which holds the base too: the types
// default, linear, llama3, yarn and longrope. longrope scales short and long texts differently; the
// model gets the short factors and the context that they are for, and a note says so.
void ReadRope(JsonReader& reader, const nlohmann::json& config_json, double usual_theta,
              SourceModel& model);
// One object of `rope_parameters` by layer type ("full_attention"), as newer files have it.
void ReadRopeOfLayerType(JsonReader& reader, const nlohmann::json& config_json,
                         const char* layer_type, SourceModel& model, RopeConfig& rope);

// longrope with its short factors is right up to `original_tokens`: limits the context to them, and
// adds a note where that is less.
void LimitLongRopeContext(int64_t original_tokens, SourceModel& model);

// Reads `sliding_window` (null: none) and which layers slide: `layer_types` where it is there, else
// by `slides`. A window that no context reaches, or that no layer has, is none.
void ReadWindow(JsonReader& reader, const nlohmann::json& config_json, ModelConfig& config,
                const std::function<bool(int64_t layer)>& slides);

}  // namespace nightshift
