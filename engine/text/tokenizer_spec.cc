#include "engine/text/tokenizer_spec.h"

#include <optional>
#include <set>
#include <utility>

#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"

#include "engine/text/byte_alphabet.h"
#include "engine/text/json_fields.h"
#include "engine/text/utf8.h"
#include "kernels/base/status_macros.h"

namespace nightshift {
namespace {

using nlohmann::json;

constexpr char kFormat[] = "nightshift-tokenizer/1";

absl::Status CheckCount(absl::string_view field, size_t count, size_t limit) {
  if (count <= limit) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("tokenizer ", field, ": ", count, " entries, at most ", limit));
}

absl::Status CheckId(absl::string_view field, int32_t id, size_t vocabulary, bool optional) {
  if (optional && id == -1) return absl::OkStatus();
  if (id >= 0 && static_cast<size_t>(id) < vocabulary) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("tokenizer ", field, ": id ", id, " outside the vocabulary of ", vocabulary));
}

json AddedTokenToJson(const AddedToken& token) {
  return {{"id", token.id},
          {"text", token.text},
          {"special", token.special},
          {"lstrip", token.lstrip},
          {"rstrip", token.rstrip},
          {"single_word", token.single_word},
          {"normalized", token.normalized}};
}

absl::Status ReadAddedToken(const json& object, AddedToken& token) {
  token.id = -1;
  RETURN_IF_ERROR(ReadField(object, "id", token.id));
  RETURN_IF_ERROR(ReadField(object, "text", token.text));
  RETURN_IF_ERROR(ReadField(object, "special", token.special));
  RETURN_IF_ERROR(ReadField(object, "lstrip", token.lstrip));
  RETURN_IF_ERROR(ReadField(object, "rstrip", token.rstrip));
  RETURN_IF_ERROR(ReadField(object, "single_word", token.single_word));
  return ReadField(object, "normalized", token.normalized);
}

absl::Status ReadTokens(const json& document, std::vector<std::string>& tokens) {
  const json* array = nullptr;
  RETURN_IF_ERROR(ReadField(document, "tokens", json::value_t::array, array));
  if (array == nullptr) return absl::InvalidArgumentError("tokenizer tokens: absent");
  RETURN_IF_ERROR(CheckCount("tokens", array->size(), kMaxVocabulary));
  tokens.reserve(array->size());
  for (const json& entry : *array) {
    std::optional<std::string> bytes;
    if (entry.is_string()) bytes = BytesFromAlphabet(entry.get_ref<const std::string&>());
    if (!bytes.has_value()) {
      return absl::InvalidArgumentError(absl::StrCat("tokenizer tokens[", tokens.size(),
                                                     "]: not a string of the byte-level alphabet"));
    }
    tokens.push_back(*std::move(bytes));
  }
  return absl::OkStatus();
}

absl::Status ReadIds(const json& document, const char* name, size_t limit,
                     std::vector<int32_t>& ids) {
  const json* array = nullptr;
  RETURN_IF_ERROR(ReadField(document, name, json::value_t::array, array));
  if (array == nullptr) return absl::OkStatus();
  RETURN_IF_ERROR(CheckCount(name, array->size(), limit));
  ids.reserve(array->size());
  for (const json& entry : *array) {
    if (!IsInt32(entry)) {
      return absl::InvalidArgumentError(
          absl::StrCat("tokenizer ", name, "[", ids.size(), "]: not a 32-bit whole number"));
    }
    ids.push_back(entry.get<int32_t>());
  }
  return absl::OkStatus();
}

absl::Status ReadMerges(const json& document, std::vector<TokenizerSpec::Merge>& merges) {
  std::vector<int32_t> flat;
  RETURN_IF_ERROR(ReadIds(document, "merges", 3 * kMaxMerges, flat));
  if (flat.size() % 3 != 0) {
    return absl::InvalidArgumentError(absl::StrCat(
        "tokenizer merges: ", flat.size(), " numbers are not triples of left, right, merged"));
  }
  merges.reserve(flat.size() / 3);
  for (size_t i = 0; i < flat.size(); i += 3) {
    merges.push_back({.left = flat[i], .right = flat[i + 1], .merged = flat[i + 2]});
  }
  return absl::OkStatus();
}

absl::Status ReadAddedTokens(const json& document, std::vector<AddedToken>& added_tokens) {
  const json* array = nullptr;
  RETURN_IF_ERROR(ReadField(document, "added_tokens", json::value_t::array, array));
  if (array == nullptr) return absl::OkStatus();
  RETURN_IF_ERROR(CheckCount("added_tokens", array->size(), kMaxAddedTokens));
  for (const json& entry : *array) {
    RETURN_IF_ERROR(ReadAddedToken(entry, added_tokens.emplace_back()));
  }
  return absl::OkStatus();
}

absl::Status ReadSplitPatterns(const json& document, std::vector<std::string>& patterns) {
  const json* array = nullptr;
  RETURN_IF_ERROR(ReadField(document, "split_patterns", json::value_t::array, array));
  if (array == nullptr) return absl::OkStatus();
  for (const json& entry : *array) {
    if (!entry.is_string()) {
      return absl::InvalidArgumentError(
          absl::StrCat("tokenizer split_patterns[", patterns.size(), "]: not a string"));
    }
    patterns.push_back(entry.get<std::string>());
  }
  return absl::OkStatus();
}

absl::Status ValidateTokens(const TokenizerSpec& spec) {
  RETURN_IF_ERROR(CheckCount("tokens", spec.tokens.size(), kMaxVocabulary));
  if (spec.tokens.empty()) return absl::InvalidArgumentError("tokenizer tokens: none");
  for (size_t id = 0; id < spec.tokens.size(); ++id) {
    if (spec.tokens[id].size() > kMaxTokenBytes) {
      return absl::InvalidArgumentError(absl::StrCat("tokenizer tokens[", id,
                                                     "]: ", spec.tokens[id].size(),
                                                     " bytes, at most ", kMaxTokenBytes));
    }
  }
  return absl::OkStatus();
}

absl::Status ValidateMerges(const TokenizerSpec& spec) {
  RETURN_IF_ERROR(CheckCount("merges", spec.merges.size(), kMaxMerges));
  for (size_t rank = 0; rank < spec.merges.size(); ++rank) {
    const TokenizerSpec::Merge& merge = spec.merges[rank];
    for (const int32_t id : {merge.left, merge.right, merge.merged}) {
      RETURN_IF_ERROR(CheckId(absl::StrCat("merges[", rank, "]"), id, spec.tokens.size(), false));
    }
  }
  return absl::OkStatus();
}

absl::Status ValidateAddedTokens(const TokenizerSpec& spec) {
  RETURN_IF_ERROR(CheckCount("added_tokens", spec.added_tokens.size(), kMaxAddedTokens));
  std::set<absl::string_view> texts;
  for (size_t i = 0; i < spec.added_tokens.size(); ++i) {
    const AddedToken& token = spec.added_tokens[i];
    const std::string name = absl::StrCat("added_tokens[", i, "]");
    RETURN_IF_ERROR(CheckId(name, token.id, spec.tokens.size(), false));
    if (token.text.empty() || token.text.size() > kMaxAddedTokenBytes) {
      return absl::InvalidArgumentError(absl::StrCat("tokenizer ", name, ": ", token.text.size(),
                                                     " bytes, want 1 to ", kMaxAddedTokenBytes));
    }
    if (FindInvalidUtf8(token.text) != std::string::npos) {
      return absl::InvalidArgumentError(absl::StrCat("tokenizer ", name, ": invalid UTF-8"));
    }
    if (!texts.insert(token.text).second) {
      return absl::InvalidArgumentError(
          absl::StrCat("tokenizer ", name, ": text \"", token.text, "\" given twice"));
    }
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status ValidateTokenizerSpec(const TokenizerSpec& spec) {
  if (spec.model != "byte_bpe") {
    return absl::InvalidArgumentError(
        absl::StrCat("tokenizer model: \"", spec.model, "\" is not supported, only byte_bpe"));
  }
  const size_t vocabulary = spec.tokens.size();
  RETURN_IF_ERROR(ValidateTokens(spec));
  RETURN_IF_ERROR(ValidateMerges(spec));
  RETURN_IF_ERROR(ValidateAddedTokens(spec));
  RETURN_IF_ERROR(CheckCount("split_patterns", spec.split_patterns.size(), kMaxSplitPatterns));
  for (const int32_t id : spec.decode_only) {
    RETURN_IF_ERROR(CheckId("decode_only", id, vocabulary, false));
  }
  for (const int32_t id : spec.eos_tokens) {
    RETURN_IF_ERROR(CheckId("eos_tokens", id, vocabulary, false));
  }
  RETURN_IF_ERROR(CheckId("unknown_token", spec.unknown_token, vocabulary, true));
  return CheckId("bos_token", spec.bos_token, vocabulary, !spec.add_bos);
}

std::string TokenizerSpecToJson(const TokenizerSpec& spec) {
  json document = {{"format", kFormat},
                   {"model", spec.model},
                   {"decode_only", spec.decode_only},
                   {"ignore_merges", spec.ignore_merges},
                   {"split_patterns", spec.split_patterns},
                   {"add_prefix_space", spec.add_prefix_space},
                   {"normalize_nfc", spec.normalize_nfc},
                   {"bos_token", spec.bos_token},
                   {"unknown_token", spec.unknown_token},
                   {"eos_tokens", spec.eos_tokens},
                   {"add_bos", spec.add_bos}};
  json& tokens = document["tokens"] = json::array();
  for (const std::string& bytes : spec.tokens)
    tokens.push_back(BytesToAlphabet(bytes));
  json& merges = document["merges"] = json::array();
  for (const TokenizerSpec::Merge& merge : spec.merges) {
    merges.push_back(merge.left);
    merges.push_back(merge.right);
    merges.push_back(merge.merged);
  }
  json& added_tokens = document["added_tokens"] = json::array();
  for (const AddedToken& token : spec.added_tokens)
    added_tokens.push_back(AddedTokenToJson(token));
  return document.dump(-1, ' ', false, json::error_handler_t::replace);
}

absl::StatusOr<TokenizerSpec> TokenizerSpecFromJson(const std::string& text) {
  const json document = json::parse(text, nullptr, false);
  if (!document.is_object()) return absl::InvalidArgumentError("tokenizer: not a JSON object");
  std::string format;
  RETURN_IF_ERROR(ReadField(document, "format", format));
  if (format != kFormat) {
    return absl::InvalidArgumentError(
        absl::StrCat("tokenizer format: \"", format, "\", want ", kFormat));
  }
  TokenizerSpec spec;
  RETURN_IF_ERROR(ReadField(document, "model", spec.model));
  RETURN_IF_ERROR(ReadTokens(document, spec.tokens));
  RETURN_IF_ERROR(ReadIds(document, "decode_only", kMaxVocabulary, spec.decode_only));
  RETURN_IF_ERROR(ReadMerges(document, spec.merges));
  RETURN_IF_ERROR(ReadField(document, "ignore_merges", spec.ignore_merges));
  RETURN_IF_ERROR(ReadSplitPatterns(document, spec.split_patterns));
  RETURN_IF_ERROR(ReadField(document, "add_prefix_space", spec.add_prefix_space));
  RETURN_IF_ERROR(ReadField(document, "normalize_nfc", spec.normalize_nfc));
  RETURN_IF_ERROR(ReadAddedTokens(document, spec.added_tokens));
  RETURN_IF_ERROR(ReadField(document, "bos_token", spec.bos_token));
  RETURN_IF_ERROR(ReadField(document, "unknown_token", spec.unknown_token));
  RETURN_IF_ERROR(ReadIds(document, "eos_tokens", kMaxVocabulary, spec.eos_tokens));
  RETURN_IF_ERROR(ReadField(document, "add_bos", spec.add_bos));
  RETURN_IF_ERROR(ValidateTokenizerSpec(spec));
  return spec;
}

}  // namespace nightshift
