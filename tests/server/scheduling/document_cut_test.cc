// Where documents are cut: in tokens, at characters, behind paragraphs, sentences and words.
#include "server/scheduling/document_cut.h"

#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "absl/strings/str_cat.h"

#include "server/input/rpc_error.h"
#include "tests/support/status_matchers.h"

namespace nightshift {
namespace {

using ::testing::AnyOf;
using ::testing::ElementsAre;

// A token a byte, and `around` tokens of an instruction.
absl::StatusOr<std::vector<DocumentPiece>> Cut(const std::string& document, const CutWishes& wishes,
                                               int64_t around = 10, int64_t extra = 0) {
  std::vector<size_t> ends;
  for (size_t i = 1; i <= document.size(); ++i) {
    ends.push_back(i);
  }
  return CutDocument(document, ends, wishes, [&](absl::string_view piece) {
    return around + static_cast<int64_t>(piece.size()) + (piece.empty() ? 0 : extra);
  });
}

std::vector<std::string> Texts(const std::string& document, const CutWishes& wishes) {
  const auto pieces = Cut(document, wishes);
  EXPECT_OK(pieces);
  std::vector<std::string> texts;
  for (const DocumentPiece& piece : *pieces) {
    EXPECT_LE(piece.prompt_tokens, wishes.max_prompt_tokens);
    EXPECT_EQ(piece.prompt_tokens, 10 + static_cast<int64_t>(piece.length));
    texts.push_back(document.substr(piece.offset, piece.length));
  }
  return texts;
}

TEST(DocumentCutTest, TruncationKeepsTheLongestBeginningAtACharacter) {
  EXPECT_THAT(Texts("abcdefgh", {.max_prompt_tokens = 15}), ElementsAre("abcde"));
  // Each Greek letter is two bytes, and here two tokens.
  EXPECT_THAT(Texts("\u03b1\u03b2\u03b3\u03b4", {.max_prompt_tokens = 15}),
              ElementsAre("\u03b1\u03b2"));
}

TEST(DocumentCutTest, APieceFitsAlsoWhenItsTokensAreMoreBesideTheInstruction) {
  const auto pieces = Cut("abcdefgh", {.max_prompt_tokens = 15}, 10, /*extra=*/2);
  ASSERT_OK(pieces);
  EXPECT_EQ((*pieces)[0].length, 3U);
  EXPECT_EQ((*pieces)[0].prompt_tokens, 15);
}

TEST(DocumentCutTest, SplitsInPiecesOfAboutEqualLength) {
  EXPECT_THAT(Texts("abcdefghij", {.max_prompt_tokens = 14, .split = true}),
              ElementsAre("abcd", "efg", "hij"));
}

TEST(DocumentCutTest, SplitsBehindTheBestBorderInTheSecondHalf) {
  const CutWishes wishes = {.max_prompt_tokens = 30, .split = true};
  EXPECT_THAT(Texts("One two three.\n\nFour. Five six seven", wishes),
              ElementsAre("One two three.\n\n", "Four. Five six seven"));
  EXPECT_THAT(Texts("One two thr. Four five six seven eig", wishes),
              ElementsAre("One two thr. ", "Four five ", "six seven eig"));
  EXPECT_THAT(Texts("Onetwothreefo urfivesixseveneightnin", wishes),
              ElementsAre("Onetwothreefo ", "urfivesixse", "veneightnin"));
  EXPECT_THAT(Texts("A line of it\nwhich goes on and on", wishes),
              ElementsAre("A line of it\n", "which goes on and on"));
}

TEST(DocumentCutTest, PiecesTogetherAreTheDocumentUnlessTheyOverlap) {
  std::string document;
  for (int i = 0; i < 300; ++i) {
    absl::StrAppend(&document, "w\u00f6rd", i, i % 7 == 0 ? ".\n\n" : i % 3 == 0 ? ". " : " ");
  }
  const auto pieces = Cut(document, {.max_prompt_tokens = 90, .split = true});
  ASSERT_OK(pieces);
  size_t end = 0;
  for (const DocumentPiece& piece : *pieces) {
    EXPECT_EQ(piece.offset, end);
    end = piece.offset + piece.length;
  }
  EXPECT_GE(end + 3, document.size());  // but for white space at its end

  const auto overlapping =
      Cut(document, {.max_prompt_tokens = 90, .split = true, .overlap_tokens = 20});
  ASSERT_OK(overlapping);
  for (size_t i = 1; i < overlapping->size(); ++i) {
    const DocumentPiece& before = (*overlapping)[i - 1];
    const size_t shared = before.offset + before.length - (*overlapping)[i].offset;
    EXPECT_GT(shared, 0U);
    EXPECT_LE(shared, 20U);
    EXPECT_THAT(document[(*overlapping)[i].offset - 1], AnyOf(' ', '\n')) << "a word begins";
  }
  EXPECT_GT(overlapping->size(), pieces->size());
}

TEST(DocumentCutTest, WhatCannotBeCutIsRefusedWithNumbers) {
  EXPECT_THAT(Cut("abc", {.max_prompt_tokens = 10}),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       "the prompt has 10 tokens without its document, at most 10 with it"));
  EXPECT_THAT(Cut("\u03b1", {.max_prompt_tokens = 11}),
              StatusIs(absl::StatusCode::kInvalidArgument, "without its document"));
  EXPECT_THAT(Cut(std::string(5000, 'x'), {.max_prompt_tokens = 12, .split = true}),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       "a document of 5000 tokens needs more than 1024 parts: only 2 tokens"));
  const auto overlap =
      Cut("abcdefgh", {.max_prompt_tokens = 16, .split = true, .overlap_tokens = 3});
  EXPECT_THAT(overlap, StatusIs(absl::StatusCode::kInvalidArgument,
                                "overlap_tokens: is 3, must be below half of 6"));
  EXPECT_EQ(ErrorReason(overlap.status()), reason::kFieldOutOfRange);
}

}  // namespace
}  // namespace nightshift
