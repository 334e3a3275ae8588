#include "engine/text/pre_tokenizer.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "absl/strings/match.h"

#include "kernels/base/status_macros.h"

namespace nightshift {
namespace {

// A stretch of a piece: a match, or what lies between two.
struct Stretch {
  TextRange range;
  bool is_match = false;
};

size_t EndOf(const TextRange& range) {
  return range.first + range.length;
}

// Covers `piece` by `matches`, whose offsets count from its start.
void Cover(const TextRange& piece, const std::vector<TextRange>& matches, bool invert,
           std::vector<Stretch>& stretches) {
  stretches.clear();
  size_t done = piece.first;
  const auto add = [&](size_t end, bool is_match) {
    if (end > done) {
      stretches.push_back({{.first = done, .length = end - done}, is_match != invert});
    }
    done = end;
  };
  for (const TextRange& match : matches) {
    add(piece.first + match.first, false);
    add(piece.first + EndOf(match), true);
  }
  add(EndOf(piece), false);
}

// Joins `added` to the last of the ranges from `begin` on, or appends it.
void Extend(const TextRange& added, size_t begin, std::vector<TextRange>& ranges) {
  if (ranges.size() == begin) {
    ranges.push_back(added);
  } else {
    ranges.back().length = EndOf(added) - ranges.back().first;
  }
}

// Each match that does not follow another is joined to what lies before it.
void MergeWithPrevious(const std::vector<Stretch>& stretches, std::vector<TextRange>& ranges) {
  const size_t begin = ranges.size();
  bool after_match = false;
  for (const Stretch& stretch : stretches) {
    if (stretch.is_match && !after_match) {
      Extend(stretch.range, begin, ranges);
    } else {
      ranges.push_back(stretch.range);
    }
    after_match = stretch.is_match;
  }
}

// Each match that does not come before another is joined to what lies behind it.
void MergeWithNext(const std::vector<Stretch>& stretches, std::vector<TextRange>& ranges) {
  for (size_t i = 0; i < stretches.size(); ++i) {
    TextRange range = stretches[i].range;
    if (stretches[i].is_match && i + 1 < stretches.size() && !stretches[i + 1].is_match) {
      range.length += stretches[++i].range.length;
    }
    ranges.push_back(range);
  }
}

void Arrange(const std::vector<Stretch>& stretches, SplitBehavior behavior,
             std::vector<TextRange>& ranges) {
  switch (behavior) {
    case SplitBehavior::kIsolated:
      for (const Stretch& stretch : stretches)
        ranges.push_back(stretch.range);
      break;
    case SplitBehavior::kRemoved:
      for (const Stretch& stretch : stretches) {
        if (!stretch.is_match) ranges.push_back(stretch.range);
      }
      break;
    case SplitBehavior::kMergedWithPrevious:
      MergeWithPrevious(stretches, ranges);
      break;
    case SplitBehavior::kMergedWithNext:
      MergeWithNext(stretches, ranges);
      break;
    case SplitBehavior::kContiguous:
      for (size_t i = 0; i < stretches.size(); ++i) {
        const bool joins = i > 0 && stretches[i].is_match == stretches[i - 1].is_match;
        Extend(stretches[i].range, joins ? ranges.size() - 1 : ranges.size(), ranges);
      }
      break;
  }
}

void FindText(absl::string_view text, const std::string& wanted, std::vector<TextRange>& matches) {
  for (size_t offset = text.find(wanted); offset != absl::string_view::npos;
       offset = text.find(wanted, offset + wanted.size())) {
    matches.push_back({.first = offset, .length = wanted.size()});
  }
}

// Whether Metaspace or a prefix goes before the piece.
bool WantsPrefix(const PreTokenizerStep& step, absl::string_view piece, absl::string_view prefix,
                 bool is_start) {
  if (absl::StartsWith(piece, prefix)) return false;
  return step.prefix == PreTokenizerStep::Prefix::kAlways ||
         (step.prefix == PreTokenizerStep::Prefix::kFirst && is_start);
}

void AddPrefixes(const PreTokenizerStep& step, PreTokenizer::Pieces& pieces) {
  std::string text;
  for (TextRange& range : pieces.ranges) {
    const auto piece = absl::string_view(pieces.text).substr(range.first, range.length);
    const size_t first = text.size();
    if (WantsPrefix(step, piece, " ", false)) text.push_back(' ');
    text.append(piece.data(), piece.size());
    range = {.first = first, .length = text.size() - first};
  }
  pieces.text.swap(text);
}

void ApplyMetaspace(const PreTokenizerStep& step, bool at_start, PreTokenizer::Pieces& pieces) {
  std::string text;
  text.reserve(pieces.text.size() + pieces.text.size() / 2);
  for (TextRange& range : pieces.ranges) {
    const auto piece = absl::string_view(pieces.text).substr(range.first, range.length);
    const size_t first = text.size();
    const bool is_start = at_start && range.first == 0;
    if (piece[0] != ' ' && WantsPrefix(step, piece, step.pattern, is_start)) text += step.pattern;
    for (const char c : piece) {
      if (c == ' ') {
        text += step.pattern;
      } else {
        text.push_back(c);
      }
    }
    range = {.first = first, .length = text.size() - first};
  }
  pieces.text.swap(text);
}

}  // namespace

absl::StatusOr<PreTokenizer> PreTokenizer::Create(const std::vector<PreTokenizerStep>& steps) {
  using Kind = PreTokenizerStep::Kind;
  PreTokenizer pre_tokenizer;
  for (const PreTokenizerStep& step : steps) {
    Step& added = pre_tokenizer.steps_.emplace_back();
    added.step = step;
    if (step.kind != Kind::kSplit && step.kind != Kind::kSplitBytes) continue;
    ASSIGN_OR_RETURN(SplitPattern pattern,
                     SplitPattern::Create(step.pattern, step.kind == Kind::kSplitBytes
                                                            ? PatternAlphabet::kBytes
                                                            : PatternAlphabet::kCharacters));
    added.pattern.push_back(std::move(pattern));
  }
  return pre_tokenizer;
}

absl::Status PreTokenizer::Split(const Step& step, Pieces& pieces) {
  std::optional<SplitPattern::Matcher> matcher;
  if (!step.pattern.empty()) matcher.emplace(step.pattern[0]);
  std::vector<TextRange> ranges;
  std::vector<TextRange> matches;
  std::vector<Stretch> stretches;
  for (const TextRange& piece : pieces.ranges) {
    const auto text = absl::string_view(pieces.text).substr(piece.first, piece.length);
    matches.clear();
    if (matcher.has_value()) {
      RETURN_IF_ERROR(matcher->Find(text, matches));
    } else {
      FindText(text, step.step.pattern, matches);
    }
    Cover(piece, matches, step.step.invert, stretches);
    Arrange(stretches, step.step.behavior, ranges);
  }
  pieces.ranges.swap(ranges);
  return absl::OkStatus();
}

absl::Status PreTokenizer::Run(absl::string_view text, bool at_start, Pieces& pieces) const {
  pieces.text.assign(text.data(), text.size());
  pieces.ranges.clear();
  if (!text.empty()) pieces.ranges.push_back({.first = 0, .length = text.size()});
  for (const Step& step : steps_) {
    at_start = at_start && !pieces.ranges.empty() && pieces.ranges[0].first == 0;
    switch (step.step.kind) {
      case PreTokenizerStep::Kind::kPrefix:
        AddPrefixes(step.step, pieces);
        break;
      case PreTokenizerStep::Kind::kMetaspace:
        ApplyMetaspace(step.step, at_start, pieces);
        break;
      case PreTokenizerStep::Kind::kSplit:
      case PreTokenizerStep::Kind::kSplitText:
      case PreTokenizerStep::Kind::kSplitBytes:
        RETURN_IF_ERROR(Split(step, pieces));
        break;
    }
  }
  return absl::OkStatus();
}

}  // namespace nightshift
