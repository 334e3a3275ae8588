// TokenizerSpec as the JSON that a pack stores.
#include <array>
#include <optional>
#include <utility>

#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"

#include "engine/text/byte_alphabet.h"
#include "engine/text/json_fields.h"
#include "engine/text/tokenizer_spec.h"
#include "kernels/base/status_macros.h"

namespace nightshift {
namespace {

using nlohmann::json;

constexpr char kFormat[] = "nightshift-tokenizer/2";
// Had fields split_patterns, add_prefix_space and normalize_nfc instead of steps.
constexpr char kFormatWithoutSteps[] = "nightshift-tokenizer/1";

template <typename E>
struct Name {
  E value;
  const char* name;
};

constexpr std::array<Name<NormalizerStep::Kind>, 9> kNormalizerKinds = {{
    {NormalizerStep::Kind::kNfc, "nfc"},
    {NormalizerStep::Kind::kNfd, "nfd"},
    {NormalizerStep::Kind::kNfkc, "nfkc"},
    {NormalizerStep::Kind::kNfkd, "nfkd"},
    {NormalizerStep::Kind::kLowercase, "lowercase"},
    {NormalizerStep::Kind::kStrip, "strip"},
    {NormalizerStep::Kind::kPrepend, "prepend"},
    {NormalizerStep::Kind::kReplace, "replace"},
    {NormalizerStep::Kind::kReplacePattern, "replace_pattern"},
}};

constexpr std::array<Name<PreTokenizerStep::Kind>, 5> kPreTokenizerKinds = {{
    {PreTokenizerStep::Kind::kSplit, "split"},
    {PreTokenizerStep::Kind::kSplitText, "split_text"},
    {PreTokenizerStep::Kind::kSplitBytes, "split_bytes"},
    {PreTokenizerStep::Kind::kPrefix, "prefix"},
    {PreTokenizerStep::Kind::kMetaspace, "metaspace"},
}};

constexpr std::array<Name<SplitBehavior>, 5> kBehaviors = {{
    {SplitBehavior::kIsolated, "isolated"},
    {SplitBehavior::kRemoved, "removed"},
    {SplitBehavior::kMergedWithPrevious, "merged_with_previous"},
    {SplitBehavior::kMergedWithNext, "merged_with_next"},
    {SplitBehavior::kContiguous, "contiguous"},
}};

constexpr std::array<Name<PreTokenizerStep::Prefix>, 3> kPrefixes = {{
    {PreTokenizerStep::Prefix::kAlways, "always"},
    {PreTokenizerStep::Prefix::kFirst, "first"},
    {PreTokenizerStep::Prefix::kNever, "never"},
}};

template <typename E, size_t kCount>
const char* NameOf(const std::array<Name<E>, kCount>& names, E value) {
  for (const Name<E>& entry : names) {
    if (entry.value == value) return entry.name;
  }
  return "";
}

// Absent: leaves `value` as it is.
template <typename E, size_t kCount>
absl::Status ReadName(const json& object, const char* field,
                      const std::array<Name<E>, kCount>& names, E& value) {
  std::string text = NameOf(names, value);
  RETURN_IF_ERROR(ReadField(object, field, text));
  for (const Name<E>& entry : names) {
    if (text != entry.name) continue;
    value = entry.value;
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(
      absl::StrCat("tokenizer ", field, ": \"", text, "\" is not known"));
}

absl::Status CheckCount(absl::string_view field, size_t count, size_t limit) {
  if (count <= limit) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("tokenizer ", field, ": ", count, " entries, at most ", limit));
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

json NormalizerStepToJson(const NormalizerStep& step) {
  return {{"kind", NameOf(kNormalizerKinds, step.kind)},
          {"from", step.from},
          {"to", step.to},
          {"left", step.left},
          {"right", step.right}};
}

absl::Status ReadNormalizerStep(const json& object, NormalizerStep& step) {
  RETURN_IF_ERROR(ReadName(object, "kind", kNormalizerKinds, step.kind));
  RETURN_IF_ERROR(ReadField(object, "from", step.from));
  RETURN_IF_ERROR(ReadField(object, "to", step.to));
  RETURN_IF_ERROR(ReadField(object, "left", step.left));
  return ReadField(object, "right", step.right);
}

json PreTokenizerStepToJson(const PreTokenizerStep& step) {
  return {{"kind", NameOf(kPreTokenizerKinds, step.kind)},
          {"pattern", step.pattern},
          {"behavior", NameOf(kBehaviors, step.behavior)},
          {"invert", step.invert},
          {"prefix", NameOf(kPrefixes, step.prefix)}};
}

absl::Status ReadPreTokenizerStep(const json& object, PreTokenizerStep& step) {
  RETURN_IF_ERROR(ReadName(object, "kind", kPreTokenizerKinds, step.kind));
  RETURN_IF_ERROR(ReadField(object, "pattern", step.pattern));
  RETURN_IF_ERROR(ReadName(object, "behavior", kBehaviors, step.behavior));
  RETURN_IF_ERROR(ReadField(object, "invert", step.invert));
  return ReadName(object, "prefix", kPrefixes, step.prefix);
}

json DecoderToJson(const DecoderSpec& decoder) {
  json replacements = json::array();
  for (const DecoderSpec::Replacement& replacement : decoder.replacements) {
    replacements.push_back({{"from", replacement.from}, {"to", replacement.to}});
  }
  return {{"replacements", std::move(replacements)},
          {"dropped_in_first", decoder.dropped_in_first},
          {"byte_fallback", decoder.byte_fallback},
          {"stripped", decoder.stripped},
          {"strip_count", decoder.strip_count}};
}

absl::Status ReadReplacement(const json& object, DecoderSpec::Replacement& replacement) {
  RETURN_IF_ERROR(ReadField(object, "from", replacement.from));
  return ReadField(object, "to", replacement.to);
}

// The objects of an array, each by `read`; an absent array has none.
template <typename T>
absl::Status ReadObjects(const json& document, const char* name, size_t limit,
                         absl::Status (*read)(const json&, T&), std::vector<T>& objects) {
  const json* array = nullptr;
  RETURN_IF_ERROR(ReadField(document, name, json::value_t::array, array));
  if (array == nullptr) return absl::OkStatus();
  RETURN_IF_ERROR(CheckCount(name, array->size(), limit));
  for (const json& entry : *array) {
    if (!entry.is_object()) {
      return absl::InvalidArgumentError(
          absl::StrCat("tokenizer ", name, "[", objects.size(), "]: not an object"));
    }
    RETURN_IF_ERROR(read(entry, objects.emplace_back()));
  }
  return absl::OkStatus();
}

absl::Status ReadDecoder(const json& document, DecoderSpec& decoder) {
  const json* object = nullptr;
  RETURN_IF_ERROR(ReadField(document, "decoder", json::value_t::object, object));
  if (object == nullptr) return absl::OkStatus();
  RETURN_IF_ERROR(ReadObjects(*object, "replacements", kMaxPipelineSteps, ReadReplacement,
                              decoder.replacements));
  RETURN_IF_ERROR(ReadField(*object, "dropped_in_first", decoder.dropped_in_first));
  RETURN_IF_ERROR(ReadField(*object, "byte_fallback", decoder.byte_fallback));
  RETURN_IF_ERROR(ReadField(*object, "stripped", decoder.stripped));
  return ReadField(*object, "strip_count", decoder.strip_count);
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

absl::Status ReadScores(const json& document, std::vector<double>& scores) {
  const json* array = nullptr;
  RETURN_IF_ERROR(ReadField(document, "scores", json::value_t::array, array));
  if (array == nullptr) return absl::OkStatus();
  RETURN_IF_ERROR(CheckCount("scores", array->size(), kMaxVocabulary));
  scores.reserve(array->size());
  for (const json& entry : *array) {
    if (!entry.is_number()) {
      return absl::InvalidArgumentError(
          absl::StrCat("tokenizer scores[", scores.size(), "]: not a number"));
    }
    scores.push_back(entry.get<double>());
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

// The fields of kFormatWithoutSteps as the steps that they meant.
absl::Status ReadFieldsBeforeSteps(const json& document, TokenizerSpec& spec) {
  bool normalize_nfc = false;
  bool add_prefix_space = false;
  RETURN_IF_ERROR(ReadField(document, "normalize_nfc", normalize_nfc));
  RETURN_IF_ERROR(ReadField(document, "add_prefix_space", add_prefix_space));
  if (normalize_nfc) spec.normalizer.push_back({.kind = NormalizerStep::Kind::kNfc});
  if (add_prefix_space) spec.pre_tokenizer.push_back({.kind = PreTokenizerStep::Kind::kPrefix});
  const json* patterns = nullptr;
  RETURN_IF_ERROR(ReadField(document, "split_patterns", json::value_t::array, patterns));
  if (patterns == nullptr) return absl::OkStatus();
  RETURN_IF_ERROR(CheckCount("split_patterns", patterns->size(), kMaxPipelineSteps));
  for (size_t i = 0; i < patterns->size(); ++i) {
    if (!(*patterns)[i].is_string()) {
      return absl::InvalidArgumentError(
          absl::StrCat("tokenizer split_patterns[", i, "]: not a string"));
    }
    spec.pre_tokenizer.push_back({.pattern = (*patterns)[i].get<std::string>()});
  }
  return absl::OkStatus();
}

absl::Status ReadSteps(const json& document, TokenizerSpec& spec) {
  RETURN_IF_ERROR(
      ReadObjects(document, "normalizer", kMaxPipelineSteps, ReadNormalizerStep, spec.normalizer));
  RETURN_IF_ERROR(ReadObjects(document, "pre_tokenizer", kMaxPipelineSteps, ReadPreTokenizerStep,
                              spec.pre_tokenizer));
  return ReadDecoder(document, spec.decoder);
}

}  // namespace

std::string TokenizerSpecToJson(const TokenizerSpec& spec) {
  json document = {{"format", kFormat},
                   {"model", spec.model},
                   {"decode_only", spec.decode_only},
                   {"scores", spec.scores},
                   {"ignore_merges", spec.ignore_merges},
                   {"byte_fallback", spec.byte_fallback},
                   {"decoder", DecoderToJson(spec.decoder)},
                   {"bos_token", spec.bos_token},
                   {"unknown_token", spec.unknown_token},
                   {"fuse_unknown", spec.fuse_unknown},
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
  json& normalizer = document["normalizer"] = json::array();
  for (const NormalizerStep& step : spec.normalizer)
    normalizer.push_back(NormalizerStepToJson(step));
  json& pre_tokenizer = document["pre_tokenizer"] = json::array();
  for (const PreTokenizerStep& step : spec.pre_tokenizer)
    pre_tokenizer.push_back(PreTokenizerStepToJson(step));
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
  TokenizerSpec spec;
  if (format == kFormat) {
    RETURN_IF_ERROR(ReadSteps(document, spec));
  } else if (format == kFormatWithoutSteps) {
    RETURN_IF_ERROR(ReadFieldsBeforeSteps(document, spec));
  } else {
    return absl::InvalidArgumentError(absl::StrCat("tokenizer format: \"", format, "\", want ",
                                                   kFormat, " or ", kFormatWithoutSteps));
  }
  RETURN_IF_ERROR(ReadField(document, "model", spec.model));
  RETURN_IF_ERROR(ReadTokens(document, spec.tokens));
  RETURN_IF_ERROR(ReadIds(document, "decode_only", kMaxVocabulary, spec.decode_only));
  RETURN_IF_ERROR(ReadScores(document, spec.scores));
  RETURN_IF_ERROR(ReadMerges(document, spec.merges));
  RETURN_IF_ERROR(ReadField(document, "ignore_merges", spec.ignore_merges));
  RETURN_IF_ERROR(ReadField(document, "byte_fallback", spec.byte_fallback));
  RETURN_IF_ERROR(
      ReadObjects(document, "added_tokens", kMaxAddedTokens, ReadAddedToken, spec.added_tokens));
  RETURN_IF_ERROR(ReadField(document, "bos_token", spec.bos_token));
  RETURN_IF_ERROR(ReadField(document, "unknown_token", spec.unknown_token));
  RETURN_IF_ERROR(ReadField(document, "fuse_unknown", spec.fuse_unknown));
  RETURN_IF_ERROR(ReadIds(document, "eos_tokens", kMaxVocabulary, spec.eos_tokens));
  RETURN_IF_ERROR(ReadField(document, "add_bos", spec.add_bos));
  RETURN_IF_ERROR(ValidateTokenizerSpec(spec));
  return spec;
}

}  // namespace nightshift
