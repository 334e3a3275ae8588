#include "engine/text/hf_pipeline.h"

#include <array>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/string_view.h"

#include "engine/text/json_fields.h"
#include "engine/text/published_patterns.h"
#include "kernels/base/status_macros.h"

namespace nightshift {
namespace {

using nlohmann::json;

// Published files nest a Sequence once.
constexpr int kMaxSequenceDepth = 4;
// `\s` and Rust's char::is_whitespace are the same set.
constexpr char kSpaces[] = R"(\s+)";

template <typename E>
struct Row {
  const char* name;
  E value;
};

constexpr std::array<Row<NormalizerStep::Kind>, 5> kPlainNormalizers = {{
    {"NFC", NormalizerStep::Kind::kNfc},
    {"NFD", NormalizerStep::Kind::kNfd},
    {"NFKC", NormalizerStep::Kind::kNfkc},
    {"NFKD", NormalizerStep::Kind::kNfkd},
    {"Lowercase", NormalizerStep::Kind::kLowercase},
}};

constexpr std::array<Row<SplitBehavior>, 5> kBehaviors = {{
    {"Isolated", SplitBehavior::kIsolated},
    {"Removed", SplitBehavior::kRemoved},
    {"MergedWithPrevious", SplitBehavior::kMergedWithPrevious},
    {"MergedWithNext", SplitBehavior::kMergedWithNext},
    {"Contiguous", SplitBehavior::kContiguous},
}};

constexpr std::array<Row<PreTokenizerStep::Prefix>, 3> kPrependSchemes = {{
    {"always", PreTokenizerStep::Prefix::kAlways},
    {"first", PreTokenizerStep::Prefix::kFirst},
    {"never", PreTokenizerStep::Prefix::kNever},
}};

// The row named by field `field` of `component`; `value` stays where the field is absent.
template <typename E, size_t kCount>
absl::Status ReadRow(const json& component, const char* field,
                     const std::array<Row<E>, kCount>& rows, E& value) {
  std::string name;
  RETURN_IF_ERROR(ReadField(component, field, name));
  if (name.empty()) return absl::OkStatus();
  for (const Row<E>& row : rows) {
    if (name != row.name) continue;
    value = row.value;
    return absl::OkStatus();
  }
  return RefusedByTokenizerJson(absl::StrCat(
      field, " \"", name, "\" is not supported, only ",
      absl::StrJoin(rows, ", ",
                    [](std::string* out, const Row<E>& row) { absl::StrAppend(out, row.name); })));
}

// A pattern {"Regex": ...} or {"String": ...}.
struct Pattern {
  std::string text;
  bool is_expression = false;
};

absl::StatusOr<Pattern> PatternOf(const json& component, const std::string& type) {
  const json* object = nullptr;
  RETURN_IF_ERROR(ReadField(component, "pattern", json::value_t::object, object));
  if (object == nullptr) return RefusedByTokenizerJson(absl::StrCat(type, " without a pattern"));
  Pattern pattern;
  std::string expression;
  RETURN_IF_ERROR(ReadField(*object, "Regex", expression));
  RETURN_IF_ERROR(ReadField(*object, "String", pattern.text));
  if (!expression.empty()) pattern = {.text = expression, .is_expression = true};
  if (pattern.text.empty()) {
    return RefusedByTokenizerJson(absl::StrCat(type, " with an empty pattern"));
  }
  return pattern;
}

// A component of the pipeline, or the members of a Sequence in their order.
absl::Status Flatten(const json& component, const char* members_name, int depth,
                     std::vector<const json*>& members) {
  ASSIGN_OR_RETURN(const std::string type, TypeOf(component));
  if (type != "Sequence") {
    members.push_back(&component);
    return absl::OkStatus();
  }
  if (depth == kMaxSequenceDepth) return RefusedByTokenizerJson("a Sequence nests too deeply");
  const json* array = nullptr;
  RETURN_IF_ERROR(ReadField(component, members_name, json::value_t::array, array));
  if (array == nullptr) {
    return RefusedByTokenizerJson(absl::StrCat("a Sequence without ", members_name));
  }
  for (const json& member : *array) {
    RETURN_IF_ERROR(Flatten(member, members_name, depth + 1, members));
  }
  return absl::OkStatus();
}

absl::StatusOr<NormalizerStep> NormalizerStepOf(const json& member) {
  ASSIGN_OR_RETURN(const std::string type, TypeOf(member));
  NormalizerStep step;
  for (const Row<NormalizerStep::Kind>& row : kPlainNormalizers) {
    if (type != row.name) continue;
    step.kind = row.value;
    return step;
  }
  if (type == "Strip") {
    step.kind = NormalizerStep::Kind::kStrip;
    RETURN_IF_ERROR(ReadField(member, "strip_left", step.left));
    RETURN_IF_ERROR(ReadField(member, "strip_right", step.right));
  } else if (type == "Prepend") {
    step.kind = NormalizerStep::Kind::kPrepend;
    RETURN_IF_ERROR(ReadField(member, "prepend", step.to));
  } else if (type == "Replace") {
    ASSIGN_OR_RETURN(Pattern pattern, PatternOf(member, type));
    step.kind = pattern.is_expression ? NormalizerStep::Kind::kReplacePattern
                                      : NormalizerStep::Kind::kReplace;
    step.from = std::move(pattern.text);
    RETURN_IF_ERROR(ReadField(member, "content", step.to));
  } else {
    return RefusedByTokenizerJson(
        absl::StrCat("normalizer ", type,
                     " is not supported, only NFC, NFD, NFKC, NFKD, Lowercase, Strip, Prepend and "
                     "Replace"));
  }
  return step;
}

// Behind ByteLevel, patterns see the characters that stand for bytes.
absl::Status AddSplit(const json& member, bool byte_level, TokenizerSpec& spec) {
  ASSIGN_OR_RETURN(Pattern pattern, PatternOf(member, "Split"));
  PreTokenizerStep step;
  step.kind = byte_level              ? PreTokenizerStep::Kind::kSplitBytes
              : pattern.is_expression ? PreTokenizerStep::Kind::kSplit
                                      : PreTokenizerStep::Kind::kSplitText;
  if (byte_level && !pattern.is_expression) {
    return RefusedByTokenizerJson(
        "pre-tokenizer Split by a String behind ByteLevel is not supported");
  }
  step.pattern = std::move(pattern.text);
  RETURN_IF_ERROR(ReadRow(member, "behavior", kBehaviors, step.behavior));
  RETURN_IF_ERROR(ReadField(member, "invert", step.invert));
  spec.pre_tokenizer.push_back(std::move(step));
  return absl::OkStatus();
}

absl::Status AddByteLevel(const json& member, TokenizerSpec& spec) {
  bool add_prefix_space = false;
  bool use_regex = true;
  RETURN_IF_ERROR(ReadField(member, "add_prefix_space", add_prefix_space));
  RETURN_IF_ERROR(ReadField(member, "use_regex", use_regex));
  if (add_prefix_space) spec.pre_tokenizer.push_back({.kind = PreTokenizerStep::Kind::kPrefix});
  if (use_regex) spec.pre_tokenizer.push_back({.pattern = kGpt2Pattern});
  return absl::OkStatus();
}

absl::Status AddDigits(const json& member, bool byte_level, TokenizerSpec& spec) {
  bool individual = false;
  RETURN_IF_ERROR(ReadField(member, "individual_digits", individual));
  PreTokenizerStep step;
  if (byte_level) {
    step.kind = PreTokenizerStep::Kind::kSplitBytes;
    step.pattern = individual ? kEachDigitBytePattern : kDigitByteRunPattern;
  } else {
    step.pattern = individual ? kEachDigitPattern : kDigitRunPattern;
  }
  spec.pre_tokenizer.push_back(std::move(step));
  return absl::OkStatus();
}

absl::Status AddPunctuation(const json& member, TokenizerSpec& spec) {
  PreTokenizerStep step = {.pattern = kPunctuationPattern};
  RETURN_IF_ERROR(ReadRow(member, "behavior", kBehaviors, step.behavior));
  spec.pre_tokenizer.push_back(std::move(step));
  return absl::OkStatus();
}

// `replacement` and the scheme, as pre-tokenizer and decoder have them. Old files say
// add_prefix_space, of which only true is what "always" means.
absl::StatusOr<PreTokenizerStep> MetaspaceOf(const json& member) {
  PreTokenizerStep step = {.kind = PreTokenizerStep::Kind::kMetaspace, .pattern = "\xE2\x96\x81"};
  RETURN_IF_ERROR(ReadField(member, "replacement", step.pattern));
  RETURN_IF_ERROR(ReadRow(member, "prepend_scheme", kPrependSchemes, step.prefix));
  bool add_prefix_space = true;
  RETURN_IF_ERROR(ReadField(member, "add_prefix_space", add_prefix_space));
  if (!add_prefix_space && step.prefix != PreTokenizerStep::Prefix::kNever) {
    return RefusedByTokenizerJson(
        "Metaspace with add_prefix_space false and a prepend_scheme that is not \"never\"");
  }
  return step;
}

absl::Status AddMetaspace(const json& member, TokenizerSpec& spec) {
  ASSIGN_OR_RETURN(const PreTokenizerStep step, MetaspaceOf(member));
  bool split = true;
  RETURN_IF_ERROR(ReadField(member, "split", split));
  spec.pre_tokenizer.push_back(step);
  if (split) {
    spec.pre_tokenizer.push_back({.kind = PreTokenizerStep::Kind::kSplitText,
                                  .pattern = step.pattern,
                                  .behavior = SplitBehavior::kMergedWithNext});
  }
  return absl::OkStatus();
}

absl::Status AddPreTokenizer(const json& member, bool& byte_level, TokenizerSpec& spec) {
  ASSIGN_OR_RETURN(const std::string type, TypeOf(member));
  if (type == "Split") return AddSplit(member, byte_level, spec);
  if (type == "Digits") return AddDigits(member, byte_level, spec);
  if (byte_level) {
    return RefusedByTokenizerJson(
        absl::StrCat("pre-tokenizer ", type, " behind ByteLevel is not supported"));
  }
  if (type == "ByteLevel") {
    byte_level = true;
    return AddByteLevel(member, spec);
  }
  if (type == "Metaspace") return AddMetaspace(member, spec);
  if (type == "Punctuation") return AddPunctuation(member, spec);
  if (type == "WhitespaceSplit") {
    spec.pre_tokenizer.push_back({.pattern = kSpaces, .behavior = SplitBehavior::kRemoved});
    return absl::OkStatus();
  }
  return RefusedByTokenizerJson(
      absl::StrCat("pre-tokenizer ", type,
                   " is not supported, only ByteLevel, Digits, Metaspace, Punctuation, Split and "
                   "WhitespaceSplit"));
}

absl::Status CheckByteLevelDecoder(const std::vector<const json*>& members) {
  for (const json* member : members) {
    ASSIGN_OR_RETURN(const std::string type, TypeOf(*member));
    if (type != "ByteLevel") {
      return RefusedByTokenizerJson(absl::StrCat(
          "decoder ", type, " of a byte-level model is not supported, only ByteLevel"));
    }
  }
  return absl::OkStatus();
}

// The decoders of models of characters, which must come in this order.
enum class DecoderStage { kTexts, kBytes, kFused, kStripped };

absl::Status AddReplacement(const json& member, DecoderSpec& decoder) {
  ASSIGN_OR_RETURN(Pattern pattern, PatternOf(member, "decoder Replace"));
  if (pattern.is_expression) {
    return RefusedByTokenizerJson("decoder Replace by a Regex is not supported");
  }
  DecoderSpec::Replacement& added = decoder.replacements.emplace_back();
  added.from = std::move(pattern.text);
  return ReadField(member, "content", added.to);
}

absl::Status AddMetaspaceDecoder(const json& member, DecoderSpec& decoder) {
  if (!decoder.replacements.empty()) {
    return RefusedByTokenizerJson("decoder Metaspace behind Replace is not supported");
  }
  ASSIGN_OR_RETURN(const PreTokenizerStep metaspace, MetaspaceOf(member));
  decoder.replacements.push_back({.from = metaspace.pattern, .to = " "});
  if (metaspace.prefix != PreTokenizerStep::Prefix::kNever) {
    decoder.dropped_in_first = metaspace.pattern;
  }
  return absl::OkStatus();
}

absl::Status SetStrip(const json& member, DecoderSpec& decoder) {
  int32_t stop = 0;
  RETURN_IF_ERROR(ReadField(member, "content", decoder.stripped));
  RETURN_IF_ERROR(ReadField(member, "start", decoder.strip_count));
  RETURN_IF_ERROR(ReadField(member, "stop", stop));
  if (stop != 0) return RefusedByTokenizerJson("decoder Strip at the end is not supported");
  return absl::OkStatus();
}

absl::Status AddDecoder(const json& member, DecoderStage& stage, DecoderSpec& decoder) {
  ASSIGN_OR_RETURN(const std::string type, TypeOf(member));
  if (type == "Replace" && stage == DecoderStage::kTexts) return AddReplacement(member, decoder);
  if (type == "Metaspace" && stage == DecoderStage::kTexts) {
    return AddMetaspaceDecoder(member, decoder);
  }
  if (type == "ByteFallback" && stage == DecoderStage::kTexts) {
    stage = DecoderStage::kBytes;
    decoder.byte_fallback = true;
    return absl::OkStatus();
  }
  if (type == "Fuse" && stage != DecoderStage::kStripped) {
    stage = DecoderStage::kFused;
    return absl::OkStatus();
  }
  if (type == "Strip" && stage == DecoderStage::kFused) {
    stage = DecoderStage::kStripped;
    return SetStrip(member, decoder);
  }
  return RefusedByTokenizerJson(
      absl::StrCat("decoder ", type,
                   " is not supported here, only Replace or Metaspace, then ByteFallback, then "
                   "Fuse, then Strip"));
}

}  // namespace

absl::Status RefusedByTokenizerJson(absl::string_view what) {
  return absl::InvalidArgumentError(absl::StrCat("tokenizer.json: ", what));
}

absl::StatusOr<std::string> TypeOf(const json& component) {
  std::string type;
  RETURN_IF_ERROR(ReadField(component, "type", type));
  return type;
}

absl::StatusOr<std::vector<const json*>> ComponentsOf(const json& document, const char* name,
                                                      const char* members_name) {
  std::vector<const json*> members;
  const json* component = nullptr;
  RETURN_IF_ERROR(ReadField(document, name, json::value_t::object, component));
  if (component != nullptr) RETURN_IF_ERROR(Flatten(*component, members_name, 0, members));
  return members;
}

absl::Status TranslateNormalizer(const json& document, TokenizerSpec& spec) {
  ASSIGN_OR_RETURN(const auto members, ComponentsOf(document, "normalizer", "normalizers"));
  for (const json* member : members) {
    ASSIGN_OR_RETURN(NormalizerStep step, NormalizerStepOf(*member));
    spec.normalizer.push_back(std::move(step));
  }
  return absl::OkStatus();
}

absl::StatusOr<bool> TranslatePreTokenizer(const json& document, TokenizerSpec& spec) {
  ASSIGN_OR_RETURN(const auto members, ComponentsOf(document, "pre_tokenizer", "pretokenizers"));
  bool byte_level = false;
  for (const json* member : members)
    RETURN_IF_ERROR(AddPreTokenizer(*member, byte_level, spec));
  return byte_level;
}

absl::Status TranslateDecoder(const json& document, TokenizerSpec& spec) {
  ASSIGN_OR_RETURN(const auto members, ComponentsOf(document, "decoder", "decoders"));
  if (members.empty()) return RefusedByTokenizerJson("no decoder");
  if (spec.model == kByteBpe) return CheckByteLevelDecoder(members);
  DecoderStage stage = DecoderStage::kTexts;
  for (const json* member : members)
    RETURN_IF_ERROR(AddDecoder(*member, stage, spec.decoder));
  return absl::OkStatus();
}

}  // namespace nightshift
