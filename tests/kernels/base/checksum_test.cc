#include "kernels/base/checksum.h"

#include <string_view>
#include <vector>

#include <gtest/gtest.h>

namespace nightshift {
namespace {

std::span<const std::byte> BytesOf(std::string_view text) {
  return {reinterpret_cast<const std::byte*>(text.data()), text.size()};
}

// RFC 3720 appendix B.4, and the check value of the Rocksoft catalogue.
TEST(Crc32cTest, GivesTheValuesOfTheIscsiStandard) {
  EXPECT_EQ(Crc32c(BytesOf("123456789")), 0xe3069283U);
  EXPECT_EQ(Crc32c(std::vector<std::byte>(32, std::byte{0})), 0x8a9136aaU);
  EXPECT_EQ(Crc32c(std::vector<std::byte>(32, std::byte{0xff})), 0x62a8ab43U);
  std::vector<std::byte> ascending;
  for (int i = 0; i < 32; ++i) {
    ascending.push_back(static_cast<std::byte>(i));
  }
  EXPECT_EQ(Crc32c(ascending), 0x46dd794eU);
  EXPECT_EQ(Crc32c({}), 0U);
}

TEST(Crc32cTest, ContinuesFromPartToPart) {
  for (size_t cut = 0; cut <= 9; ++cut) {
    const std::string_view text = "123456789";
    EXPECT_EQ(Crc32c(BytesOf(text.substr(cut)), Crc32c(BytesOf(text.substr(0, cut)))), 0xe3069283U);
  }
}

// From the xxHash specification's sanity checks: the empty input, seed 0.
TEST(Xxh3Test, GivesTheValueOfTheSpecification) {
  EXPECT_EQ(Xxh3({}), 0x2d06800538d394c2U);
}

TEST(Xxh3Test, ChangesWithEveryByte) {
  std::vector<std::byte> bytes(300, std::byte{7});
  const uint64_t original = Xxh3(bytes);
  for (std::byte& byte : bytes) {
    byte ^= std::byte{1};
    EXPECT_NE(Xxh3(bytes), original);
    byte ^= std::byte{1};
  }
  EXPECT_EQ(Xxh3(bytes), original);
}

TEST(Xxh3StreamTest, GivesTheNumberOfTheWholeForEveryCutIntoPieces) {
  std::vector<std::byte> bytes;
  for (int i = 0; i < 1000; ++i) {
    bytes.push_back(static_cast<std::byte>(i * 7));
  }
  const std::span<const std::byte> whole = bytes;
  for (const size_t cut : {size_t{0}, size_t{1}, size_t{240}, size_t{255}, size_t{1000}}) {
    Xxh3Stream stream;
    stream.Update(whole.first(cut));
    EXPECT_EQ(stream.Digest(), Xxh3(whole.first(cut)));
    stream.Update(whole.subspan(cut));
    EXPECT_EQ(stream.Digest(), Xxh3(whole));
  }
}

}  // namespace
}  // namespace nightshift
