#include "server/input/line_splitter.h"

#include <string>
#include <tuple>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include "tests/support/status_matchers.h"

namespace nightshift {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

// A file in memory.
class MemoryFile {
 public:
  explicit MemoryFile(const std::string& content) : fd_(::memfd_create("input", MFD_CLOEXEC)) {
    EXPECT_EQ(::write(fd_, content.data(), content.size()), static_cast<ssize_t>(content.size()));
  }
  ~MemoryFile() { ::close(fd_); }
  int fd() const { return fd_; }

 private:
  int fd_;
};

using Line = std::tuple<int64_t, std::string>;  // line number, text

template <typename Splitter>
absl::StatusOr<std::vector<Line>> Split(const std::string& content, int64_t limit) {
  const MemoryFile file(content);
  Splitter splitter(file.fd(), limit);
  std::vector<Line> lines;
  SplitRow row;
  while (true) {
    const absl::StatusOr<bool> more = splitter.Next(row);
    if (!more.ok()) {
      return more.status();
    }
    if (!*more) {
      return lines;
    }
    std::string text(row.bytes);
    if (!row.too_long) {
      EXPECT_EQ(content.substr(static_cast<size_t>(row.place.offset),
                               static_cast<size_t>(row.place.length)),
                text);
    }
    lines.emplace_back(row.place.line, row.too_long ? "(too long)" : text);
  }
}

std::vector<Line> Lines(const std::string& content, int64_t limit = 1 << 20) {
  const auto lines = Split<LineSplitter>(content, limit);
  EXPECT_OK(lines);
  return lines.ok() ? *lines : std::vector<Line>();
}

TEST(LineSplitterTest, GivesLinesWithTheirNumbers) {
  EXPECT_THAT(Lines("a\nbb\nccc\n"), ElementsAre(Line(1, "a"), Line(2, "bb"), Line(3, "ccc")));
}

TEST(LineSplitterTest, TakesALastLineWithoutNewline) {
  EXPECT_THAT(Lines("a\nb"), ElementsAre(Line(1, "a"), Line(2, "b")));
}

TEST(LineSplitterTest, TakesCarriageReturnsOffLineEnds) {
  EXPECT_THAT(Lines("a\r\nb\r\n"), ElementsAre(Line(1, "a"), Line(2, "b")));
}

TEST(LineSplitterTest, SkipsBlankLinesButCountsThem) {
  EXPECT_THAT(Lines("\n\na\n \t\r\n\nb\n\n"), ElementsAre(Line(3, "a"), Line(6, "b")));
}

TEST(LineSplitterTest, SkipsTheByteOrderMark) {
  EXPECT_THAT(Lines("\xEF\xBB\xBF"
                    "a\n"),
              ElementsAre(Line(1, "a")));
}

TEST(LineSplitterTest, GivesNothingOfAnEmptyFile) {
  EXPECT_THAT(Lines(""), IsEmpty());
  EXPECT_THAT(Lines("\n \n"), IsEmpty());
  EXPECT_THAT(Lines("\xEF\xBB\xBF"), IsEmpty());
}

TEST(LineSplitterTest, TellsOtherEncodings) {
  const auto refusal = [](const std::string& content) {
    return Split<LineSplitter>(content, 100).status();
  };
  EXPECT_THAT(refusal("\xFF\xFE{"), StatusIs(absl::StatusCode::kInvalidArgument, "UTF-16 (little"));
  EXPECT_THAT(refusal("\xFE\xFF{"), StatusIs(absl::StatusCode::kInvalidArgument, "UTF-16 (big"));
  EXPECT_THAT(refusal(std::string("{\0\"\0", 4)),
              StatusIs(absl::StatusCode::kInvalidArgument, "UTF-16 (little"));
  EXPECT_THAT(refusal(std::string("\0{\0\"", 4)),
              StatusIs(absl::StatusCode::kInvalidArgument, "UTF-16 (big"));
  EXPECT_THAT(refusal(std::string("\xFF\xFE\0\0", 4)),
              StatusIs(absl::StatusCode::kInvalidArgument, "UTF-32"));
}

TEST(LineSplitterTest, MarksLinesAboveTheLimitAndGoesOn) {
  const std::string long_line(3 << 20, 'x');
  EXPECT_THAT(
      Lines("a\n" + long_line + "\nb\n" + long_line, 1000),
      ElementsAre(Line(1, "a"), Line(2, "(too long)"), Line(3, "b"), Line(4, "(too long)")));
}

TEST(LineSplitterTest, TakesALineOfExactlyTheLimit) {
  const std::string line(600 << 10, 'x');
  EXPECT_THAT(Lines(line + "\r\nb", 600 << 10), ElementsAre(Line(1, line), Line(2, "b")));
}

TEST(MessageSplitterTest, GivesMessagesBehindTheirLengths) {
  const std::string big(300, 'y');
  const auto messages = Split<MessageSplitter>(
      std::string("\x02") + "ab" + std::string("\0", 1) + "\xAC\x02" + big, 1000);
  ASSERT_OK(messages);
  EXPECT_THAT(*messages, ElementsAre(Line(0, "ab"), Line(0, ""), Line(0, big)));
}

TEST(MessageSplitterTest, RefusesLengthsThatCannotBe) {
  const auto refusal = [](const std::string& content) {
    return Split<MessageSplitter>(content, 1000).status();
  };
  EXPECT_THAT(refusal("\x05"
                      "ab"),
              StatusIs(absl::StatusCode::kInvalidArgument, "the input ends after 2"));
  EXPECT_THAT(refusal("\x80"), StatusIs(absl::StatusCode::kInvalidArgument, "broken length"));
  EXPECT_THAT(refusal(std::string(11, '\xFF')),
              StatusIs(absl::StatusCode::kInvalidArgument, "broken length"));
  EXPECT_THAT(refusal("\xE9\x07"), StatusIs(absl::StatusCode::kInvalidArgument, "at most 1000"));
}

}  // namespace
}  // namespace nightshift
