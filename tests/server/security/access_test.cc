#include <fstream>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include "absl/strings/str_cat.h"

#include "server/security/access_control.h"
#include "server/security/access_list.h"
#include "server/tools/make_token.h"
#include "tests/support/status_matchers.h"
#include "tests/support/temporary_folder.h"

namespace nightshift {
namespace {

using ::absl::StatusCode;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::IsNull;
using ::testing::Not;
using ::testing::NotNull;
using ::testing::SizeIs;

constexpr int64_t kSecond = 1'000'000;

std::string LineOf(const std::string& token, const std::string& rest) {
  const std::string line = AccessLine(token, Caller(), kNeverExpires);
  return absl::StrCat(line.substr(0, line.find(' ')), " ", rest, "\n");
}

TEST(AccessListTest, KnowsTokensAndCertificatesByTenantRoleAndExpiry) {
  const auto list = AccessList::Parse(
      absl::StrCat("# who may\n\n", LineOf("one", "acme submitter never  # until he leaves"),
                   LineOf("two", "bolt\treader 2027-01-31T18:00:00Z"),
                   "certificate:spiffe://site/tenant/acme acme admin 2027-01-31\r\n"));
  ASSERT_OK(list);
  const AccessEntry* one = list->FindToken("one");
  ASSERT_THAT(one, NotNull());
  EXPECT_EQ(one->caller.tenant, "acme");
  EXPECT_EQ(one->caller.role, Role::kSubmitter);
  EXPECT_EQ(one->expire_time_us, kNeverExpires);
  const AccessEntry* two = list->FindToken("two");
  ASSERT_THAT(two, NotNull());
  EXPECT_EQ(two->expire_time_us, 1801418400 * kSecond);
  const AccessEntry* peer = list->FindCertificate({"other", "spiffe://site/tenant/acme"});
  ASSERT_THAT(peer, NotNull());
  EXPECT_EQ(peer->caller.role, Role::kAdmin);
  EXPECT_EQ(peer->expire_time_us, 1801353600 * kSecond);
  EXPECT_THAT(list->FindToken("three"), IsNull());
  EXPECT_THAT(list->FindToken(""), IsNull());
  EXPECT_THAT(list->FindCertificate({"spiffe://site/tenant/bolt"}), IsNull());
  EXPECT_THAT(list->FindCertificate({""}), IsNull());
}

TEST(AccessListTest, NamesTheWrongLineAndWhatIsWrongButNoSecret) {
  const std::string good = LineOf("good", "acme reader never");
  const std::string digest = good.substr(0, 64);
  const auto error_of = [&](const std::string& line) {
    return std::string(AccessList::Parse(absl::StrCat("#\n", good, line)).status().message());
  };
  EXPECT_THAT(error_of("ns_secret acme reader never"),
              AllOf(HasSubstr("line 3"), HasSubstr("64 hexadecimal"), Not(HasSubstr("ns_secret"))));
  EXPECT_THAT(error_of(LineOf("bad", "acme reader")), HasSubstr("line 3 has 3 words"));
  EXPECT_THAT(error_of(LineOf("bad", "Acme reader never")), HasSubstr("line 3 has a tenant"));
  EXPECT_THAT(error_of(LineOf("bad", "../x reader never")), HasSubstr("line 3 has a tenant"));
  EXPECT_THAT(error_of(LineOf("bad", "acme owner never")), HasSubstr("reader, submitter, admin"));
  EXPECT_THAT(error_of(LineOf("bad", "acme reader tomorrow")), HasSubstr("line 3 has an expiry"));
  EXPECT_THAT(error_of("certificate: acme reader never"), HasSubstr("names no certificate"));
  EXPECT_THAT(error_of(LineOf("good", "bolt reader never")),
              AllOf(HasSubstr("line 3"), HasSubstr("earlier line"), Not(HasSubstr(digest))));
}

TEST(MakeTokenTest, MakesATokenThatItsLineLetsIn) {
  const auto made = CreateToken({.tenant = "acme", .role = "submitter", .days = 1}, 1000 * kSecond);
  ASSERT_OK(made);
  EXPECT_THAT(made->token, SizeIs(46));
  EXPECT_THAT(made->access_line, Not(HasSubstr(made->token)));
  const auto list = AccessList::Parse(made->access_line);
  ASSERT_OK(list);
  const AccessEntry* entry = list->FindToken(made->token);
  ASSERT_THAT(entry, NotNull());
  EXPECT_EQ(entry->caller.tenant, "acme");
  EXPECT_EQ(entry->caller.role, Role::kSubmitter);
  EXPECT_EQ(entry->expire_time_us, (1000 + 86400) * kSecond);
  EXPECT_NE(CreateToken({.role = "reader"}, 0)->token, CreateToken({.role = "reader"}, 0)->token);
}

TEST(MakeTokenTest, RefusesWhatAnAccessFileWould) {
  EXPECT_THAT(CreateToken({.role = "root"}, 0),
              StatusIs(StatusCode::kInvalidArgument, "--role is \"root\""));
  EXPECT_THAT(CreateToken({.tenant = "A b", .role = "reader"}, 0),
              StatusIs(StatusCode::kInvalidArgument, "--tenant is \"A b\""));
  EXPECT_THAT(CreateToken({.role = "reader", .days = -1}, 0),
              StatusIs(StatusCode::kInvalidArgument, "--days is -1"));
}

class AccessControlTest : public ::testing::Test {
 protected:
  void Write(const std::string& text, mode_t mode = 0640) {
    std::ofstream(path_) << text;
    ASSERT_EQ(::chmod(path_.c_str(), mode), 0);
  }

  TemporaryFolder folder_;
  const std::string path_ = folder_.path() + "/access";
};

TEST_F(AccessControlTest, LetsEverybodyInWithoutAFile) {
  const auto control = AccessControl::Create("");
  ASSERT_OK(control);
  EXPECT_THAT((*control)->current(), IsNull());
  EXPECT_OK((*control)->Reload());
}

TEST_F(AccessControlTest, RefusesAFileThatOthersCanReadOrWrite) {
  for (const mode_t mode : {0644, 0602, 0660, 0641}) {
    Write("", mode);
    EXPECT_THAT(
        AccessControl::Create(path_),
        StatusIs(StatusCode::kFailedPrecondition, "chmod 640 " + path_))
        << mode;
  }
  Write("", 0440);
  EXPECT_OK(AccessControl::Create(path_));
  EXPECT_THAT(AccessControl::Create(folder_.path() + "/none"),
              StatusIs(StatusCode::kNotFound, "/none"));
}

TEST_F(AccessControlTest, KeepsTheLastGoodFileWhenTheNextIsWrong) {
  Write(LineOf("one", "acme reader never"));
  const auto control = AccessControl::Create(path_);
  ASSERT_OK(control);
  Write(absl::StrCat(LineOf("two", "acme reader never"), "broken\n"));
  EXPECT_THAT((*control)->Reload(),
              StatusIs(StatusCode::kInvalidArgument, path_ + " line 2"));
  EXPECT_THAT((*control)->current()->FindToken("one"), NotNull());
  EXPECT_THAT((*control)->current()->FindToken("two"), IsNull());
  Write(LineOf("two", "acme reader never"));
  EXPECT_OK((*control)->Reload());
  EXPECT_THAT((*control)->current()->FindToken("one"), IsNull());
  EXPECT_THAT((*control)->current()->FindToken("two"), NotNull());
  Write("");
  EXPECT_OK((*control)->Reload());
  EXPECT_THAT((*control)->current()->entries(), IsEmpty());
}

}  // namespace
}  // namespace nightshift
