#include "engine/text/text_normalizer.h"

#include <algorithm>
#include <utility>

#include <utf8proc.h>

#include "engine/text/normal_form.h"
#include "kernels/base/status_macros.h"
#include "kernels/base/utf8.h"

namespace nightshift {
namespace {

constexpr char kTrusted = 1;
constexpr char kOther = 0;

// The trust of what [first, last) became.
char TrustOf(const std::string& trust, size_t first, size_t last) {
  const auto begin = trust.begin() + static_cast<std::ptrdiff_t>(first);
  const auto end = trust.begin() + static_cast<std::ptrdiff_t>(last);
  return std::find(begin, end, kOther) == end ? kTrusted : kOther;
}

// A text that grows piece by piece, with its trust.
class Builder {
 public:
  explicit Builder(const std::string& source_trust) : source_trust_(source_trust) {}

  // `text` is what source bytes [first, last) became.
  void Add(absl::string_view text, size_t first, size_t last) {
    text_.append(text.data(), text.size());
    if (!source_trust_.empty()) trust_.append(text.size(), TrustOf(source_trust_, first, last));
  }
  // Bytes [first, last) of `source` stay as they are.
  void Copy(const std::string& source, size_t first, size_t last) {
    text_.append(source, first, last - first);
    if (!source_trust_.empty()) trust_.append(source_trust_, first, last - first);
  }
  void MoveTo(std::string& text, std::string& trust) {
    text.swap(text_);
    trust.swap(trust_);
  }

 private:
  const std::string& source_trust_;
  std::string text_;
  std::string trust_;
};

NormalForm FormOf(NormalizerStep::Kind kind) {
  switch (kind) {
    case NormalizerStep::Kind::kNfd:
      return NormalForm::kNfd;
    case NormalizerStep::Kind::kNfkc:
      return NormalForm::kNfkc;
    case NormalizerStep::Kind::kNfkd:
      return NormalForm::kNfkd;
    default:
      return NormalForm::kNfc;
  }
}

// Normalises [first, last), which holds trusted and other text, keeping trust where the two do not
// touch each other: where the parts normalise to the parts of the whole.
void NormalizeMixed(const std::string& text, const std::string& trust, size_t first, size_t last,
                    NormalForm form, Builder& builder) {
  const absl::string_view view = text;
  const std::string whole = Normalize(view.substr(first, last - first), form);
  size_t done = first;    // in text
  size_t done_whole = 0;  // in `whole`
  for (size_t end = first + 1; end <= last; ++end) {
    if (end < last && trust[end] == trust[end - 1]) continue;
    const std::string part = Normalize(view.substr(done, end - done), form);
    if (end < last) {
      const std::string rest = Normalize(view.substr(end, last - end), form);
      const absl::string_view tail = absl::string_view(whole).substr(done_whole);
      if (tail.size() != part.size() + rest.size() || tail.substr(0, part.size()) != part ||
          tail.substr(part.size()) != rest) {
        break;
      }
    }
    builder.Add(part, done, end);
    done = end;
    done_whole += part.size();
  }
  if (done < last) builder.Add(absl::string_view(whole).substr(done_whole), done, last);
}

// An ASCII character composes with nothing before it and is not reordered, so a text normalises to
// what its stretches from one ASCII character to the next normalise to (UAX 15, section 9).
void ApplyForm(NormalForm form, std::string& text, std::string& trust) {
  if (trust.empty()) {
    text = Normalize(text, form);
    return;
  }
  Builder builder(trust);
  for (size_t first = 0; first < text.size();) {
    size_t last = first + 1;
    while (last < text.size() && static_cast<unsigned char>(text[last]) >= 0x80)
      ++last;
    if (std::count(trust.begin() + static_cast<std::ptrdiff_t>(first),
                   trust.begin() + static_cast<std::ptrdiff_t>(last),
                   trust[first]) == static_cast<std::ptrdiff_t>(last - first)) {
      builder.Add(Normalize(absl::string_view(text).substr(first, last - first), form), first,
                  last);
    } else {
      NormalizeMixed(text, trust, first, last, form, builder);
    }
    first = last;
  }
  builder.MoveTo(text, trust);
}

void ApplyLowercase(std::string& text, std::string& trust) {
  // The one character whose lower case has two (SpecialCasing.txt): i and a dot above.
  constexpr char32_t kCapitalIWithDot = 0x130;
  Builder builder(trust);
  std::string lower;
  for (size_t offset = 0; offset < text.size();) {
    const Utf8Step step = NextCharacter(text, offset);
    lower.clear();
    if (step.character == kCapitalIWithDot) {
      lower = "i\xCC\x87";
    } else {
      const utf8proc_int32_t mapped = utf8proc_tolower(static_cast<int32_t>(step.character));
      AppendCharacter(static_cast<char32_t>(mapped), lower);
    }
    builder.Add(lower, offset, offset + step.length);
    offset += step.length;
  }
  builder.MoveTo(text, trust);
}

void ApplyStrip(const NormalizerStep& step, std::string& text, std::string& trust,
                bool& keeps_start) {
  size_t first = 0;
  size_t last = text.size();
  while (step.left && first < last) {
    const Utf8Step character = NextCharacter(text, first);
    if (!IsUnicodeSpace(character.character)) break;
    first += character.length;
  }
  while (step.right && last > first) {
    const size_t previous = PreviousCharacter(text, last);
    if (!IsUnicodeSpace(NextCharacter(text, previous).character)) break;
    last = previous;
  }
  keeps_start = keeps_start && first == 0;
  text = text.substr(first, last - first);
  if (!trust.empty()) trust = trust.substr(first, last - first);
}

void ReplaceRanges(const std::vector<TextRange>& ranges, const std::string& to, std::string& text,
                   std::string& trust, bool& keeps_start) {
  if (ranges.empty()) return;
  Builder builder(trust);
  size_t done = 0;
  for (const TextRange& range : ranges) {
    builder.Copy(text, done, range.first);
    done = range.first + range.length;
    builder.Add(to, range.first, done);
    if (range.first == 0 && to.empty()) keeps_start = false;
  }
  builder.Copy(text, done, text.size());
  builder.MoveTo(text, trust);
}

std::vector<TextRange> FindText(const std::string& text, const std::string& wanted) {
  std::vector<TextRange> found;
  for (size_t offset = text.find(wanted); offset != std::string::npos;
       offset = text.find(wanted, offset + wanted.size())) {
    found.push_back({.first = offset, .length = wanted.size()});
  }
  return found;
}

// The common case: no ranges, no trust.
void ReplaceText(const std::string& from, const std::string& to, std::string& text) {
  std::string replaced;
  replaced.reserve(text.size() + text.size() / 2);
  size_t done = 0;
  for (size_t offset = text.find(from); offset != std::string::npos;
       offset = text.find(from, done)) {
    replaced.append(text, done, offset - done);
    replaced.append(to);
    done = offset + from.size();
  }
  replaced.append(text, done);
  text.swap(replaced);
}

std::vector<TextRange> RangesOf(const std::string& trust) {
  std::vector<TextRange> ranges;
  for (size_t first = 0; first < trust.size();) {
    size_t last = first;
    while (last < trust.size() && trust[last] == trust[first])
      ++last;
    if (trust[first] == kTrusted) ranges.push_back({.first = first, .length = last - first});
    first = last;
  }
  return ranges;
}

// How many bytes become one at most.
size_t MostSourceBytes(const NormalizerStep& step) {
  switch (step.kind) {
    case NormalizerStep::Kind::kNfc:
    case NormalizerStep::Kind::kNfd:
      return 3;  // three jamo of 3 bytes are a syllable of 3 bytes, the Kelvin sign is K
    case NormalizerStep::Kind::kNfkc:
    case NormalizerStep::Kind::kNfkd:
      return 4;  // a mathematical letter of 4 bytes is a Latin one of 1
    case NormalizerStep::Kind::kLowercase:
      return 3;  // the Kelvin sign is k
    case NormalizerStep::Kind::kPrepend:
      return 1;
    case NormalizerStep::Kind::kReplace:
      return step.to.empty() ? 0 : (step.from.size() + step.to.size() - 1) / step.to.size();
    case NormalizerStep::Kind::kStrip:
    case NormalizerStep::Kind::kReplacePattern:
      break;
  }
  return 0;
}

}  // namespace

absl::StatusOr<TextNormalizer> TextNormalizer::Create(const std::vector<NormalizerStep>& steps) {
  TextNormalizer normalizer;
  for (const NormalizerStep& step : steps) {
    Step& added = normalizer.steps_.emplace_back();
    added.step = step;
    if (step.kind == NormalizerStep::Kind::kReplacePattern) {
      ASSIGN_OR_RETURN(SplitPattern pattern, SplitPattern::Create(step.from));
      added.pattern.push_back(std::move(pattern));
    }
    normalizer.most_source_bytes_ *= MostSourceBytes(step);
  }
  return normalizer;
}

absl::Status TextNormalizer::Apply(const Step& step, Work& work) {
  const NormalizerStep& options = step.step;
  switch (options.kind) {
    case NormalizerStep::Kind::kNfc:
    case NormalizerStep::Kind::kNfd:
    case NormalizerStep::Kind::kNfkc:
    case NormalizerStep::Kind::kNfkd:
      ApplyForm(FormOf(options.kind), work.text, work.trust);
      break;
    case NormalizerStep::Kind::kLowercase:
      ApplyLowercase(work.text, work.trust);
      break;
    case NormalizerStep::Kind::kStrip:
      ApplyStrip(options, work.text, work.trust, work.keeps_start);
      break;
    case NormalizerStep::Kind::kPrepend:
      if (work.text.empty()) break;
      work.text.insert(0, options.to);
      if (!work.trust.empty()) work.trust.insert(0, options.to.size(), work.trust[0]);
      break;
    case NormalizerStep::Kind::kReplace:
      if (work.trust.empty() && !options.to.empty()) {
        ReplaceText(options.from, options.to, work.text);
      } else {
        ReplaceRanges(FindText(work.text, options.from), options.to, work.text, work.trust,
                      work.keeps_start);
      }
      break;
    case NormalizerStep::Kind::kReplacePattern: {
      std::vector<TextRange> matches;
      RETURN_IF_ERROR(SplitPattern::Matcher(step.pattern[0]).Find(work.text, matches));
      ReplaceRanges(matches, options.to, work.text, work.trust, work.keeps_start);
      break;
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<NormalizedText> TextNormalizer::Run(absl::string_view text,
                                                   const std::vector<TextRange>& trusted) const {
  Work work;
  work.text = std::string(text);
  const bool all = trusted.size() == 1 && trusted[0].length == text.size();
  if (!trusted.empty() && !all) {
    work.trust.assign(text.size(), kOther);
    for (const TextRange& range : trusted)
      work.trust.replace(range.first, range.length, range.length, kTrusted);
  }
  for (const Step& step : steps_)
    RETURN_IF_ERROR(Apply(step, work));
  NormalizedText normalized;
  normalized.keeps_start = work.keeps_start;
  if (all) {
    normalized.trusted = {{.first = 0, .length = work.text.size()}};
  } else {
    normalized.trusted = RangesOf(work.trust);
  }
  normalized.text = std::move(work.text);
  return normalized;
}

}  // namespace nightshift
