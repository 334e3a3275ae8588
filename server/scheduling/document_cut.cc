#include "server/scheduling/document_cut.h"

#include <algorithm>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"

#include "kernels/base/status_macros.h"
#include "server/input/row_error.h"

namespace nightshift {
namespace {

bool IsSpace(char byte) {
  return absl::ascii_isspace(static_cast<unsigned char>(byte));
}

size_t CharacterStart(absl::string_view text, size_t offset) {
  while (offset > 0 && offset < text.size() &&
         (static_cast<unsigned char>(text[offset]) & 0xC0) == 0x80) {
    --offset;
  }
  return offset;
}

bool EndsSentence(absl::string_view text) {
  text = text.substr(0, text.find_last_not_of("\"')]") + 1);
  for (const absl::string_view end : {".", "!", "?", "…", "。", "！", "？"}) {
    if (absl::EndsWith(text, end)) {
      return true;
    }
  }
  return false;
}

// How good a place to cut the document at `offset` is; the larger the better.
enum class Border { kNone, kWord, kSentence, kParagraph };

Border BorderAt(absl::string_view document, size_t offset) {
  if (IsSpace(document[offset])) {
    return Border::kNone;  // white space goes with what is before it
  }
  const absl::string_view before = document.substr(0, offset);
  const absl::string_view text = before.substr(0, before.find_last_not_of(" \t\r\n\f\v") + 1);
  const absl::string_view space = before.substr(text.size());
  const auto lines = std::count(space.begin(), space.end(), '\n');
  if (lines > 1) {
    return Border::kParagraph;
  }
  // Languages without spaces end sentences without one.
  if (lines == 1 || (EndsSentence(text) && (!space.empty() || text.back() < 0))) {
    return Border::kSentence;
  }
  return space.empty() ? Border::kNone : Border::kWord;
}

// The last of the best borders in the second half of [begin, end], or end itself.
size_t GoodEnd(absl::string_view document, size_t begin, size_t end) {
  size_t best = end;
  Border found = Border::kNone;
  for (size_t offset = end; offset > begin + (end - begin) / 2; --offset) {
    if (CharacterStart(document, offset) != offset) {
      continue;
    }
    const Border border = BorderAt(document, offset);
    if (border > found) {
      found = border;
      best = offset;
    }
    if (found == Border::kParagraph) {
      break;
    }
  }
  return best;
}

class Cutter {
 public:
  Cutter(absl::string_view document, const std::vector<size_t>& token_ends,
         const CutWishes& wishes, const CountPrompt& count)
      : document_(document), token_ends_(token_ends), wishes_(wishes), count_(count) {}

  absl::StatusOr<std::vector<DocumentPiece>> Cut() {
    ASSIGN_OR_RETURN(around_tokens_, count_(""));
    room_tokens_ = wishes_.max_prompt_tokens - around_tokens_;
    if (room_tokens_ <= 0) {
      return NoRoom();
    }
    if (wishes_.overlap_tokens > 0 && 2 * wishes_.overlap_tokens >= room_tokens_) {
      return MakeFieldError(reason::kFieldOutOfRange,
                            {{"overlap_tokens",
                              absl::StrCat("is ", wishes_.overlap_tokens, ", must be below half of ",
                                           room_tokens_, ", the tokens that a part may have")}});
    }
    std::vector<DocumentPiece> pieces;
    size_t begin = 0;
    do {
      if (pieces.size() == kMaxDocumentPieces) {
        return TooLong(absl::StrCat("a document of ", token_ends_.size(), " tokens needs more than ",
                                    kMaxDocumentPieces, " parts: only ", room_tokens_,
                                    " tokens of a prompt are left for it"));
      }
      ASSIGN_OR_RETURN(const DocumentPiece piece, Next(begin));
      pieces.push_back(piece);
      begin = NextBegin(piece);
    } while (wishes_.split && !IsDone(pieces.back()));
    return pieces;
  }

 private:
  static absl::Status TooLong(const std::string& message) {
    return RowError(reason::kPromptTooLong, row_code::kTooLong, "", message);
  }

  absl::Status NoRoom() const {
    return TooLong(absl::StrCat("the prompt has ", around_tokens_,
                                " tokens without its document, at most ",
                                wishes_.max_prompt_tokens, " with it"));
  }

  // How many tokens end at `offset` or before.
  int64_t TokensUntil(size_t offset) const {
    return std::upper_bound(token_ends_.begin(), token_ends_.end(), offset) - token_ends_.begin();
  }

  // Where so many tokens of the document end, at a character's start.
  size_t EndOf(int64_t tokens) const {
    const int64_t last = std::min(tokens, static_cast<int64_t>(token_ends_.size()));
    return last <= 0 ? 0 : CharacterStart(document_, token_ends_[static_cast<size_t>(last - 1)]);
  }

  bool IsDone(const DocumentPiece& piece) const {
    return absl::StripAsciiWhitespace(document_.substr(piece.offset + piece.length)).empty();
  }

  // What one of the pieces should have, if `rest` tokens make as few as can be, of equal length.
  int64_t Share(int64_t rest) const {
    if (!wishes_.split || rest <= room_tokens_) {
      return std::min(rest, room_tokens_);
    }
    const int64_t overlap = wishes_.overlap_tokens;
    const int64_t step = room_tokens_ - overlap;
    const int64_t pieces = (rest - overlap + step - 1) / step;
    return std::min(room_tokens_, (rest + (pieces - 1) * overlap + pieces - 1) / pieces);
  }

  absl::StatusOr<DocumentPiece> Next(size_t begin) const {
    const int64_t before = TokensUntil(begin);
    const int64_t rest = static_cast<int64_t>(token_ends_.size()) - before;
    int64_t tokens = Share(rest);
    while (tokens > 0) {
      size_t end = EndOf(before + tokens);
      if (wishes_.split && end < document_.size()) {
        end = GoodEnd(document_, begin, end);
      }
      if (end <= begin) {
        break;
      }
      ASSIGN_OR_RETURN(const int64_t count, count_(document_.substr(begin, end - begin)));
      const int64_t excess = count - wishes_.max_prompt_tokens;
      if (excess <= 0) {
        return DocumentPiece{.offset = begin, .length = end - begin, .prompt_tokens = count};
      }
      // Tokens at its ends may be others beside the instruction. Two halves are better than a last
      // piece of a few tokens.
      tokens -= wishes_.split && tokens == rest ? (tokens + 1) / 2 : std::max<int64_t>(1, excess);
    }
    return NoRoom();
  }

  size_t NextBegin(const DocumentPiece& piece) const {
    const size_t end = piece.offset + piece.length;
    if (wishes_.overlap_tokens == 0) {
      return end;
    }
    const size_t begin = EndOf(TokensUntil(end) - wishes_.overlap_tokens);
    if (begin <= piece.offset) {
      return end;
    }
    size_t word = begin;
    while (word < end && !(IsSpace(document_[word - 1]) && !IsSpace(document_[word]))) {
      ++word;
    }
    return word < end ? word : begin;
  }

  const absl::string_view document_;
  const std::vector<size_t>& token_ends_;
  const CutWishes wishes_;
  const CountPrompt& count_;
  int64_t around_tokens_ = 0;  // of the prompt without the document
  int64_t room_tokens_ = 0;
};

}  // namespace

absl::StatusOr<std::vector<DocumentPiece>> CutDocument(absl::string_view document,
                                                       const std::vector<size_t>& token_ends,
                                                       const CutWishes& wishes,
                                                       const CountPrompt& count) {
  return Cutter(document, token_ends, wishes, count).Cut();
}

}  // namespace nightshift
