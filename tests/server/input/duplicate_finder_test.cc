#include "server/input/duplicate_finder.h"

#include <map>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "absl/strings/str_cat.h"

#include "tests/support/status_matchers.h"

namespace nightshift {
namespace {

using ::testing::IsEmpty;
using ::testing::Pair;
using ::testing::UnorderedElementsAre;

class DuplicateFinderTest : public ::testing::Test {
 protected:
  DuplicateFinderTest() : finder_(DuplicateFinder::Create(::testing::TempDir()).value()) {}

  void Add(const std::string& id) { ASSERT_OK(finder_->Add(id)); }
  // Later row to first row.
  std::map<int64_t, int64_t> Find() {
    std::map<int64_t, int64_t> duplicates;
    EXPECT_OK(finder_->Find([&](int64_t row, int64_t first) {
      EXPECT_TRUE(duplicates.emplace(row, first).second) << "row " << row << " told twice";
      return absl::OkStatus();
    }));
    return duplicates;
  }

  std::unique_ptr<DuplicateFinder> finder_;
};

TEST_F(DuplicateFinderTest, FindsNothingAmongDistinctIds) {
  for (int i = 0; i < 1000; ++i) {
    Add(absl::StrCat("row-", i));
  }
  EXPECT_THAT(Find(), IsEmpty());
}

TEST_F(DuplicateFinderTest, NamesTheFirstUseForEachLaterOne) {
  for (const char* id : {"a", "b", "a", "c", "b", "a"}) {
    Add(id);
  }
  EXPECT_THAT(Find(), UnorderedElementsAre(Pair(2, 0), Pair(4, 1), Pair(5, 0)));
}

TEST_F(DuplicateFinderTest, NeverCountsEmptyIds) {
  Add("");
  Add("");
  Add("x");
  EXPECT_THAT(Find(), IsEmpty());
}

TEST_F(DuplicateFinderTest, FindsThemAcrossPartsOfTheHashSpace) {
  constexpr int64_t kRows = 600'000;  // three parts
  for (int64_t i = 0; i < kRows; ++i) {
    Add(absl::StrCat(i % (kRows / 2)));
  }
  const std::map<int64_t, int64_t> duplicates = Find();
  EXPECT_EQ(duplicates.size(), kRows / 2);
  for (const auto& [row, first] : duplicates) {
    ASSERT_EQ(row - first, kRows / 2);
  }
}

TEST_F(DuplicateFinderTest, FoldsManyRowsOfOneId) {
  constexpr int64_t kRows = 1'200'000;
  for (int64_t i = 0; i < kRows; ++i) {
    Add("same");
  }
  int64_t count = 0;
  ASSERT_OK(finder_->Find([&](int64_t row, int64_t first) {
    EXPECT_EQ(first, 0);
    count += row > 0 ? 1 : 0;
    return absl::OkStatus();
  }));
  EXPECT_EQ(count, kRows - 1);
}

}  // namespace
}  // namespace nightshift
