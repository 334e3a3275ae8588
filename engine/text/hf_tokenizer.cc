// TokenizerSpecFromHuggingFace: tokenizer.json (version 1.0) and tokenizer_config.json.
#include <algorithm>
#include <array>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"

#include "engine/text/byte_alphabet.h"
#include "engine/text/json_fields.h"
#include "engine/text/published_patterns.h"
#include "engine/text/tokenizer_spec.h"
#include "kernels/base/status_macros.h"

namespace nightshift {
namespace {

using nlohmann::json;

// Published files nest a Sequence once.
constexpr int kMaxSequenceDepth = 4;

absl::Status Refused(absl::string_view what) {
  return absl::InvalidArgumentError(absl::StrCat("tokenizer.json: ", what));
}

absl::StatusOr<std::string> TypeOf(const json& component) {
  std::string type;
  RETURN_IF_ERROR(ReadField(component, "type", type));
  return type;
}

// A component of the pipeline, or the members of a Sequence in their order.
absl::Status Flatten(const json& component, const char* members_name, int depth,
                     std::vector<const json*>& members) {
  ASSIGN_OR_RETURN(const std::string type, TypeOf(component));
  if (type != "Sequence") {
    members.push_back(&component);
    return absl::OkStatus();
  }
  if (depth == kMaxSequenceDepth) return Refused("a Sequence nests too deeply");
  const json* array = nullptr;
  RETURN_IF_ERROR(ReadField(component, members_name, json::value_t::array, array));
  if (array == nullptr) return Refused(absl::StrCat("a Sequence without ", members_name));
  for (const json& member : *array) {
    RETURN_IF_ERROR(Flatten(member, members_name, depth + 1, members));
  }
  return absl::OkStatus();
}

absl::StatusOr<std::vector<const json*>> Components(const json& document, const char* name,
                                                    const char* members_name) {
  std::vector<const json*> members;
  const json* component = nullptr;
  RETURN_IF_ERROR(ReadField(document, name, json::value_t::object, component));
  if (component != nullptr) RETURN_IF_ERROR(Flatten(*component, members_name, 0, members));
  return members;
}

absl::Status TranslateNormalizer(const json& document, TokenizerSpec& spec) {
  ASSIGN_OR_RETURN(const auto members, Components(document, "normalizer", "normalizers"));
  for (const json* member : members) {
    ASSIGN_OR_RETURN(const std::string type, TypeOf(*member));
    if (type != "NFC") {
      return Refused(absl::StrCat("normalizer ", type, " is not supported, only NFC"));
    }
    spec.normalize_nfc = true;
  }
  return absl::OkStatus();
}

// A Split's pattern as a regular expression; a plain string is escaped.
absl::StatusOr<std::string> PatternOf(const json& split) {
  const json* pattern = nullptr;
  RETURN_IF_ERROR(ReadField(split, "pattern", json::value_t::object, pattern));
  if (pattern == nullptr) return Refused("a Split without a pattern");
  std::string expression;
  std::string plain;
  RETURN_IF_ERROR(ReadField(*pattern, "Regex", expression));
  RETURN_IF_ERROR(ReadField(*pattern, "String", plain));
  for (const char c : plain) {
    if (absl::ascii_ispunct(static_cast<unsigned char>(c))) expression.push_back('\\');
    expression.push_back(c);
  }
  return expression;
}

absl::Status TranslateSplit(const json& split, TokenizerSpec& spec) {
  std::string behavior;
  bool invert = false;
  RETURN_IF_ERROR(ReadField(split, "behavior", behavior));
  RETURN_IF_ERROR(ReadField(split, "invert", invert));
  if (behavior != "Isolated" || invert) {
    return Refused(absl::StrCat("pre-tokenizer Split with behavior ", behavior,
                                invert ? ", inverted," : "",
                                " is not supported, only Isolated, not inverted"));
  }
  ASSIGN_OR_RETURN(std::string pattern, PatternOf(split));
  spec.split_patterns.push_back(std::move(pattern));
  return absl::OkStatus();
}

absl::Status TranslateByteLevel(const json& byte_level, TokenizerSpec& spec) {
  bool use_regex = true;
  RETURN_IF_ERROR(ReadField(byte_level, "add_prefix_space", spec.add_prefix_space));
  RETURN_IF_ERROR(ReadField(byte_level, "use_regex", use_regex));
  if (spec.add_prefix_space && !spec.split_patterns.empty()) {
    return Refused("pre-tokenizer ByteLevel with add_prefix_space behind another is not supported");
  }
  if (use_regex) spec.split_patterns.emplace_back(kGpt2Pattern);
  return absl::OkStatus();
}

absl::Status TranslatePreTokenizer(const json& document, TokenizerSpec& spec) {
  ASSIGN_OR_RETURN(const auto members, Components(document, "pre_tokenizer", "pretokenizers"));
  bool byte_level = false;
  for (const json* member : members) {
    ASSIGN_OR_RETURN(const std::string type, TypeOf(*member));
    if (byte_level) {
      return Refused(absl::StrCat("pre-tokenizer ", type, " behind ByteLevel is not supported"));
    }
    if (type == "ByteLevel") {
      byte_level = true;
      RETURN_IF_ERROR(TranslateByteLevel(*member, spec));
    } else if (type == "Split") {
      RETURN_IF_ERROR(TranslateSplit(*member, spec));
    } else if (type == "Digits") {
      bool individual = false;
      RETURN_IF_ERROR(ReadField(*member, "individual_digits", individual));
      spec.split_patterns.emplace_back(individual ? kEachDigitPattern : kDigitRunPattern);
    } else {
      return Refused(absl::StrCat("pre-tokenizer ", type,
                                  " is not supported, only ByteLevel, Digits and Split"));
    }
  }
  if (!byte_level) return Refused("no ByteLevel pre-tokenizer: only byte-level BPE is supported");
  return absl::OkStatus();
}

absl::Status CheckDecoder(const json& document) {
  ASSIGN_OR_RETURN(const auto members, Components(document, "decoder", "decoders"));
  if (members.empty()) return Refused("no decoder, want ByteLevel");
  for (const json* member : members) {
    ASSIGN_OR_RETURN(const std::string type, TypeOf(*member));
    if (type != "ByteLevel") {
      return Refused(absl::StrCat("decoder ", type, " is not supported, only ByteLevel"));
    }
  }
  return absl::OkStatus();
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
    std::optional<std::string> bytes = BytesFromAlphabet(entry.key());
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
absl::Status CheckModelOptions(const json& model) {
  std::string type = "BPE";
  RETURN_IF_ERROR(ReadField(model, "type", type));
  if (type != "BPE") return Refused(absl::StrCat("model ", type, " is not supported, only BPE"));
  bool byte_fallback = false;
  RETURN_IF_ERROR(ReadField(model, "byte_fallback", byte_fallback));
  if (byte_fallback) {
    return Refused(
        "BPE with byte_fallback (SentencePiece style) is not supported, only byte-level");
  }
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

// unk_token matters only where a byte has no token of its own.
absl::Status TranslateUnknown(const json& model, const Vocabulary& vocabulary,
                              TokenizerSpec& spec) {
  std::string text;
  bool fuse = false;
  RETURN_IF_ERROR(ReadField(model, "unk_token", text));
  RETURN_IF_ERROR(ReadField(model, "fuse_unk", fuse));
  if (text.empty() || HasEveryByte(spec)) return absl::OkStatus();
  const auto id = vocabulary.find(text);
  if (id == vocabulary.end()) {
    return Refused(absl::StrCat("unk_token \"", text, "\" is not in the vocab"));
  }
  if (fuse) return Refused("BPE with fuse_unk and bytes without a token is not supported");
  spec.unknown_token = id->second;
  return absl::OkStatus();
}

absl::Status TranslateModel(const json& document, TokenizerSpec& spec) {
  const json* model = nullptr;
  RETURN_IF_ERROR(ReadField(document, "model", json::value_t::object, model));
  if (model == nullptr) return Refused("no model");
  RETURN_IF_ERROR(CheckModelOptions(*model));
  RETURN_IF_ERROR(ReadField(*model, "ignore_merges", spec.ignore_merges));
  ASSIGN_OR_RETURN(const Vocabulary vocabulary, TranslateVocabulary(*model, spec));
  RETURN_IF_ERROR(TranslateMerges(*model, vocabulary, spec));
  return TranslateUnknown(*model, vocabulary, spec);
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
    // What the model itself does not know is found as an added token only.
    if (id >= vocabulary) spec.decode_only.push_back(token.id);
    spec.tokens[id] = token.text;
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
      return Refused("TemplateProcessing that adds more than one token before the text");
    }
    std::string name;
    RETURN_IF_ERROR(ReadField(*special, "id", name));
    ASSIGN_OR_RETURN(spec.bos_token, IdOfTemplateToken(processor, name));
    spec.add_bos = true;
  }
  return absl::OkStatus();
}

absl::Status TranslatePostProcessor(const json& document, TokenizerSpec& spec) {
  ASSIGN_OR_RETURN(const auto members, Components(document, "post_processor", "processors"));
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
  RETURN_IF_ERROR(TranslatePreTokenizer(document, spec));
  RETURN_IF_ERROR(CheckDecoder(document));
  RETURN_IF_ERROR(TranslateAddedTokens(document, spec));
  RETURN_IF_ERROR(TranslatePostProcessor(document, spec));
  RETURN_IF_ERROR(TranslateConfig(tokenizer_config_json, spec));
  RETURN_IF_ERROR(ValidateTokenizerSpec(spec));
  return spec;
}

}  // namespace nightshift
