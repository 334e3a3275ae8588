#include "client/uuid.h"

#include <gtest/gtest.h>

#include "absl/strings/escaping.h"

namespace nightshift {
namespace {

// RFC 4122, appendix C: the namespace of domain names.
const char kDomainNames[] = "6ba7b8109dad11d180b400c04fd430c8";

// Expected values: Python's uuid.uuid5.
TEST(UuidTest, Version5AgreesWithAnotherImplementation) {
  const std::string domain_names = absl::HexStringToBytes(kDomainNames);
  EXPECT_EQ(UuidV5(domain_names, "www.example.com"), "2ed6657d-e927-568b-95e1-2665a8aea6a2");
  EXPECT_EQ(UuidV5(domain_names, "nightshift.v1"), "25f329b3-5b80-5e82-a573-2857ea4ebfcc");
}

TEST(UuidTest, RandomOnesDifferAndSayTheirVersion) {
  const std::string uuid = RandomUuid();
  EXPECT_EQ(uuid.size(), 36U);
  EXPECT_EQ(uuid[14], '4');
  EXPECT_NE(std::string("89ab").find(uuid[19]), std::string::npos);
  EXPECT_NE(uuid, RandomUuid());
}

TEST(UuidTest, ARequestIdDependsOnInputSpecAndRunKey) {
  const std::string id = RequestIdOf("input", "spec", "key");
  EXPECT_EQ(id, RequestIdOf("input", "spec", "key"));
  EXPECT_NE(id, RequestIdOf("other", "spec", "key"));
  EXPECT_NE(id, RequestIdOf("input", "other", "key"));
  EXPECT_NE(id, RequestIdOf("input", "spec", "other"));
  EXPECT_NE(RequestIdOf("input", "ab", "c"), RequestIdOf("input", "a", "bc"));
}

}  // namespace
}  // namespace nightshift
