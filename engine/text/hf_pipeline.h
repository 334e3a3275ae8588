// The normalizer, pre_tokenizer and decoder of a tokenizer.json as steps of a TokenizerSpec.
#pragma once

#include <string>
#include <vector>

#include <nlohmann/json_fwd.hpp>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

#include "engine/text/tokenizer_spec.h"

namespace nightshift {

// The component `name` of a tokenizer.json: none, itself, or the members (`members_name`) of a
// Sequence in their order. Errors: INVALID_ARGUMENT for what is malformed.
absl::StatusOr<std::vector<const nlohmann::json*>> ComponentsOf(const nlohmann::json& document,
                                                                const char* name,
                                                                const char* members_name);

// The "type" of a component; empty if it has none.
absl::StatusOr<std::string> TypeOf(const nlohmann::json& component);

// An INVALID_ARGUMENT that names the file.
absl::Status RefusedByTokenizerJson(absl::string_view what);

// Each fills its part of `spec`. Errors: INVALID_ARGUMENT naming what we do not have.
absl::Status TranslateNormalizer(const nlohmann::json& document, TokenizerSpec& spec);
// Tells whether pieces are bytes (ByteLevel) and not characters.
absl::StatusOr<bool> TranslatePreTokenizer(const nlohmann::json& document, TokenizerSpec& spec);
// `spec.model` says which decoders fit.
absl::Status TranslateDecoder(const nlohmann::json& document, TokenizerSpec& spec);

}  // namespace nightshift
