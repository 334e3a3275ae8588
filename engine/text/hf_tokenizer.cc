// TokenizerSpecFromHuggingFace: tokenizer.json (version 1.0) and tokenizer_config.json.
#include <algorithm>
#include <array>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/str_cat.h"

#include "engine/text/byte_alphabet.h"
#include "engine/text/character_fallback.h"
#include "engine/text/hf_pipeline.h"
#include "engine/text/json_fields.h"
#include "engine/text/tokenizer_spec.h"
#include "kernels/base/status_macros.h"

namespace nightshift {
namespace {

using nlohmann::json;

absl::Status Refused(absl::string_view what) {
  return RefusedByTokenizerJson(what);
}

using Vocabulary = absl::flat_hash_map<absl::string_view, int32_t>;

// The vocabulary's texts as keys into `document`, and their bytes by id.
absl::StatusOr<Vocabulary> TranslateVocabulary(const json& model, TokenizerSpec& spec) {
  const json* entries = nullptr;
  RETURN_IF_ERROR(ReadField(model, "vocab", json::value_t::object, entries));
  if (entries == nullptr || entries->empty()) return Refused("the model has no vocab");
  Vocabulary vocabulary;
  vocabulary.reserve(entries->size());
  int32_t largest = 0;
  for (const auto& [text, id] : entries->items()) {
    if (!IsInt32(id) || id.get<int32_t>() < 0 ||
        static_cast<size_t>(id.get<int32_t>()) >= kMaxVocabulary) {
      return Refused(
          absl::StrCat("vocab \"", text, "\": not an id from 0 to ", kMaxVocabulary - 1));
    }
    largest = std::max(largest, id.get<int32_t>());
  }
  spec.tokens.resize(static_cast<size_t>(largest) + 1);
  std::vector<bool> taken(spec.tokens.size());
  for (auto entry = entries->begin(); entry != entries->end(); ++entry) {
    const auto id = entry.value().get<int32_t>();
    if (taken[static_cast<size_t>(id)]) return Refused(absl::StrCat("vocab: id ", id, " twice"));
    taken[static_cast<size_t>(id)] = true;
    vocabulary.emplace(entry.key(), id);
    // Of a model of bytes, what is not written in the alphabet can be decoded only.
    std::optional<std::string> bytes =
        spec.model == kByteBpe ? BytesFromAlphabet(entry.key()) : entry.key();
    if (!bytes.has_value()) spec.decode_only.push_back(id);
    spec.tokens[static_cast<size_t>(id)] = bytes.has_value() ? *std::move(bytes) : entry.key();
  }
  return vocabulary;
}

// One merge as "left right" or as ["left", "right"].
std::optional<std::array<std::string, 2>> PartsOfMerge(const json& merge) {
  if (merge.is_array() && merge.size() == 2 && merge[0].is_string() && merge[1].is_string()) {
    return {{merge[0].get<std::string>(), merge[1].get<std::string>()}};
  }
  if (!merge.is_string()) return std::nullopt;
  const auto& text = merge.get_ref<const std::string&>();
  const size_t space = text.find(' ');
  if (space == std::string::npos) return std::nullopt;
  return {{text.substr(0, space), text.substr(space + 1)}};
}

absl::Status TranslateMerges(const json& model, const Vocabulary& vocabulary, TokenizerSpec& spec) {
  const json* merges = nullptr;
  RETURN_IF_ERROR(ReadField(model, "merges", json::value_t::array, merges));
  if (merges == nullptr) return Refused("the model has no merges");
  spec.merges.reserve(std::min(merges->size(), kMaxMerges));
  for (const json& merge : *merges) {
    const size_t rank = spec.merges.size();
    if (rank == kMaxMerges) return Refused(absl::StrCat("more than ", kMaxMerges, " merges"));
    const auto parts = PartsOfMerge(merge);
    if (!parts.has_value()) return Refused(absl::StrCat("merge ", rank, ": not a pair of strings"));
    const auto left = vocabulary.find((*parts)[0]);
    const auto right = vocabulary.find((*parts)[1]);
    const auto merged = vocabulary.find(absl::StrCat((*parts)[0], (*parts)[1]));
    if (left == vocabulary.end() || right == vocabulary.end() || merged == vocabulary.end()) {
      return Refused(absl::StrCat("merge ", rank, " \"", (*parts)[0], "\" \"", (*parts)[1],
                                  "\": a part or the whole is not in the vocab"));
    }
    spec.merges.push_back({.left = left->second, .right = right->second, .merged = merged->second});
  }
  return absl::OkStatus();
}

// Options of the BPE model that change ids and that we do not have.
absl::Status CheckBpeOptions(const json& model) {
  for (const char* affix : {"continuing_subword_prefix", "end_of_word_suffix"}) {
    std::string text;
    RETURN_IF_ERROR(ReadField(model, affix, text));
    if (!text.empty()) return Refused(absl::StrCat("BPE with ", affix, " is not supported"));
  }
  const auto dropout = model.find("dropout");
  if (dropout != model.end() && !dropout->is_null() && *dropout != 0) {
    return Refused("BPE with dropout is not supported: ids would be random");
  }
  return absl::OkStatus();
}

bool HasEveryByte(const TokenizerSpec& spec) {
  std::array<bool, 256> found{};
  for (const std::string& token : spec.tokens) {
    if (token.size() == 1) found[static_cast<uint8_t>(token[0])] = true;
  }
  return std::find(found.begin(), found.end(), false) == found.end();
}

// byte_fallback is only a wish: it counts where there are tokens of bytes, and then all must be
// there.
absl::Status TranslateByteFallback(const json& model, TokenizerSpec& spec) {
  bool byte_fallback = false;
  RETURN_IF_ERROR(ReadField(model, "byte_fallback", byte_fallback));
  if (!byte_fallback) return absl::OkStatus();
  if (spec.model == kByteBpe) {
    if (HasEveryByte(spec)) return absl::OkStatus();
    return Refused("byte-level BPE with byte_fallback and bytes without a token is not supported");
  }
  spec.byte_fallback = std::any_of(spec.tokens.begin(), spec.tokens.end(),
                                   [](const auto& token) { return ByteOfToken(token) >= 0; });
  return CharacterFallback::Create(spec).status();
}

// unk_token matters only where a byte or character may have no token.
absl::Status TranslateUnknown(const json& model, const Vocabulary& vocabulary,
                              TokenizerSpec& spec) {
  std::string text;
  RETURN_IF_ERROR(ReadField(model, "unk_token", text));
  if (text.empty() || spec.byte_fallback) return absl::OkStatus();
  if (spec.model == kByteBpe && HasEveryByte(spec)) return absl::OkStatus();
  const auto id = vocabulary.find(text);
  if (id == vocabulary.end()) {
    return Refused(absl::StrCat("unk_token \"", text, "\" is not in the vocab"));
  }
  spec.unknown_token = id->second;
  return ReadField(model, "fuse_unk", spec.fuse_unknown);
}

absl::Status TranslateBpe(const json& model, TokenizerSpec& spec) {
  RETURN_IF_ERROR(CheckBpeOptions(model));
  RETURN_IF_ERROR(ReadField(model, "ignore_merges", spec.ignore_merges));
  ASSIGN_OR_RETURN(const Vocabulary vocabulary, TranslateVocabulary(model, spec));
  RETURN_IF_ERROR(TranslateMerges(model, vocabulary, spec));
  RETURN_IF_ERROR(TranslateByteFallback(model, spec));
  return TranslateUnknown(model, vocabulary, spec);
}

// The vocab is a list of [text, score]; its places are the ids.
absl::Status TranslateUnigram(const json& model, TokenizerSpec& spec) {
  const json* entries = nullptr;
  RETURN_IF_ERROR(ReadField(model, "vocab", json::value_t::array, entries));
  if (entries == nullptr || entries->empty()) return Refused("the model has no vocab");
  if (entries->size() > kMaxVocabulary) {
    return Refused(absl::StrCat("vocab: ", entries->size(), " entries, at most ", kMaxVocabulary));
  }
  for (const json& entry : *entries) {
    if (!entry.is_array() || entry.size() != 2 || !entry[0].is_string() || !entry[1].is_number()) {
      return Refused(absl::StrCat("vocab ", spec.tokens.size(), ": not a text and a score"));
    }
    spec.tokens.push_back(entry[0].get<std::string>());
    spec.scores.push_back(entry[1].get<double>());
  }
  RETURN_IF_ERROR(ReadField(model, "unk_id", spec.unknown_token));
  if (spec.unknown_token < 0 || static_cast<size_t>(spec.unknown_token) >= spec.tokens.size()) {
    return Refused(absl::StrCat("Unigram with unk_id ", spec.unknown_token, ": not in the vocab"));
  }
  spec.fuse_unknown = true;
  return TranslateByteFallback(model, spec);
}

absl::Status TranslateModel(const json& document, TokenizerSpec& spec) {
  const json* model = nullptr;
  RETURN_IF_ERROR(ReadField(document, "model", json::value_t::object, model));
  if (model == nullptr) return Refused("no model");
  std::string type = "BPE";
  RETURN_IF_ERROR(ReadField(*model, "type", type));
  ASSIGN_OR_RETURN(const bool byte_level, TranslatePreTokenizer(document, spec));
  if (type == "BPE") {
    spec.model = byte_level ? kByteBpe : kCharacterBpe;
    return TranslateBpe(*model, spec);
  }
  if (type != "Unigram") {
    return Refused(absl::StrCat("model ", type, " is not supported, only BPE and Unigram"));
  }
  if (byte_level) return Refused("Unigram with pre-tokenizer ByteLevel is not supported");
  spec.model = kUnigram;
  return TranslateUnigram(*model, spec);
}

absl::Status TranslateAddedTokens(const json& document, TokenizerSpec& spec) {
  const json* entries = nullptr;
  RETURN_IF_ERROR(ReadField(document, "added_tokens", json::value_t::array, entries));
  if (entries == nullptr) return absl::OkStatus();
  const size_t vocabulary = spec.tokens.size();
  for (const json& entry : *entries) {
    AddedToken token;
    token.id = -1;
    RETURN_IF_ERROR(ReadField(entry, "id", token.id));
    RETURN_IF_ERROR(ReadField(entry, "content", token.text));
    RETURN_IF_ERROR(ReadField(entry, "special", token.special));
    RETURN_IF_ERROR(ReadField(entry, "lstrip", token.lstrip));
    RETURN_IF_ERROR(ReadField(entry, "rstrip", token.rstrip));
    RETURN_IF_ERROR(ReadField(entry, "single_word", token.single_word));
    RETURN_IF_ERROR(ReadField(entry, "normalized", token.normalized));
    if (token.id < 0 || static_cast<size_t>(token.id) >= kMaxVocabulary) {
      return Refused(absl::StrCat("added token \"", token.text, "\": id ", token.id,
                                  " is not from 0 to ", kMaxVocabulary - 1));
    }
    const auto id = static_cast<size_t>(token.id);
    if (id >= spec.tokens.size()) spec.tokens.resize(id + 1);
    if (spec.model == kUnigram) spec.scores.resize(spec.tokens.size());
    // What the model itself does not know is found as an added token only. Decoding reads it as the
    // model's tokens.
    if (id >= vocabulary) spec.decode_only.push_back(token.id);
    if (id >= vocabulary || spec.tokens[id].empty()) {
      const std::optional<std::string> bytes =
          spec.model == kByteBpe ? BytesFromAlphabet(token.text) : std::nullopt;
      spec.tokens[id] = bytes.value_or(token.text);
    }
    spec.added_tokens.push_back(std::move(token));
  }
  return absl::OkStatus();
}

// The id that a TemplateProcessing gives for a name.
absl::StatusOr<int32_t> IdOfTemplateToken(const json& processor, const std::string& name) {
  const json* tokens = nullptr;
  RETURN_IF_ERROR(ReadField(processor, "special_tokens", json::value_t::object, tokens));
  const json* token = nullptr;
  const json* ids = nullptr;
  if (tokens != nullptr) {
    RETURN_IF_ERROR(ReadField(*tokens, name.c_str(), json::value_t::object, token));
  }
  if (token != nullptr) RETURN_IF_ERROR(ReadField(*token, "ids", json::value_t::array, ids));
  if (ids == nullptr || ids->size() != 1 || !IsInt32((*ids)[0])) {
    return Refused(absl::StrCat("TemplateProcessing: \"", name, "\" has no single id"));
  }
  return (*ids)[0].get<int32_t>();
}

// TemplateProcessing may put one token before the text: BOS.
absl::Status TranslateTemplate(const json& processor, TokenizerSpec& spec) {
  const json* single = nullptr;
  RETURN_IF_ERROR(ReadField(processor, "single", json::value_t::array, single));
  if (single == nullptr) return Refused("TemplateProcessing without single");
  for (size_t i = 0; i < single->size(); ++i) {
    const json* special = nullptr;
    RETURN_IF_ERROR(ReadField((*single)[i], "SpecialToken", json::value_t::object, special));
    if (special == nullptr) continue;
    if (i != 0 || single->size() != 2) {
      return Refused("TemplateProcessing that adds other than one token before the text");
    }
    std::string name;
    RETURN_IF_ERROR(ReadField(*special, "id", name));
    ASSIGN_OR_RETURN(spec.bos_token, IdOfTemplateToken(processor, name));
    spec.add_bos = true;
  }
  return absl::OkStatus();
}

absl::Status TranslatePostProcessor(const json& document, TokenizerSpec& spec) {
  ASSIGN_OR_RETURN(const auto members, ComponentsOf(document, "post_processor", "processors"));
  for (const json* member : members) {
    ASSIGN_OR_RETURN(const std::string type, TypeOf(*member));
    if (type == "TemplateProcessing") {
      RETURN_IF_ERROR(TranslateTemplate(*member, spec));
    } else if (type != "ByteLevel") {
      return Refused(absl::StrCat("post-processor ", type,
                                  " is not supported, only ByteLevel and TemplateProcessing"));
    }
  }
  return absl::OkStatus();
}

// The id of a special token that tokenizer_config.json names, as a string or as {"content": ...};
// -1 if it names none. Such a token is special even where tokenizer.json does not say so.
absl::StatusOr<int32_t> IdOfConfigToken(const json& config, const char* name, TokenizerSpec& spec) {
  std::string text;
  const auto field = config.find(name);
  if (field == config.end() || field->is_null()) return -1;
  if (field->is_object()) {
    RETURN_IF_ERROR(ReadField(*field, "content", text));
  } else {
    RETURN_IF_ERROR(ReadField(config, name, text));
  }
  for (AddedToken& token : spec.added_tokens) {
    if (token.text != text) continue;
    token.special = true;
    return token.id;
  }
  const auto token = std::find(spec.tokens.begin(), spec.tokens.end(), text);
  if (text.empty() || token == spec.tokens.end()) {
    return absl::InvalidArgumentError(absl::StrCat("tokenizer_config.json: ", name, " \"", text,
                                                   "\" is not a token of tokenizer.json"));
  }
  const auto id = static_cast<int32_t>(token - spec.tokens.begin());
  spec.added_tokens.push_back({.id = id, .text = text, .special = true});
  return id;
}

absl::Status TranslateConfig(const std::string& text, TokenizerSpec& spec) {
  if (text.empty()) return absl::OkStatus();
  const json config = json::parse(text, nullptr, false);
  if (!config.is_object()) {
    return absl::InvalidArgumentError("tokenizer_config.json: not a JSON object");
  }
  ASSIGN_OR_RETURN(const int32_t bos, IdOfConfigToken(config, "bos_token", spec));
  ASSIGN_OR_RETURN(const int32_t eos, IdOfConfigToken(config, "eos_token", spec));
  if (!spec.add_bos) {
    spec.bos_token = bos;
    RETURN_IF_ERROR(ReadField(config, "add_bos_token", spec.add_bos));
  }
  if (eos >= 0) spec.eos_tokens.push_back(eos);
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<TokenizerSpec> TokenizerSpecFromHuggingFace(
    const std::string& tokenizer_json, const std::string& tokenizer_config_json) {
  const json document = json::parse(tokenizer_json, nullptr, false);
  if (!document.is_object()) return Refused("not a JSON object");
  TokenizerSpec spec;
  RETURN_IF_ERROR(TranslateModel(document, spec));
  RETURN_IF_ERROR(TranslateNormalizer(document, spec));
  RETURN_IF_ERROR(TranslateDecoder(document, spec));
  RETURN_IF_ERROR(TranslateAddedTokens(document, spec));
  RETURN_IF_ERROR(TranslatePostProcessor(document, spec));
  RETURN_IF_ERROR(TranslateConfig(tokenizer_config_json, spec));
  RETURN_IF_ERROR(ValidateTokenizerSpec(spec));
  return spec;
}

}  // namespace nightshift
