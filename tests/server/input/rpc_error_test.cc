#include "server/input/rpc_error.h"

#include <gtest/gtest.h>

#include "absl/strings/str_cat.h"

#include "kernels/base/utf8.h"
#include "tests/support/status_matchers.h"

#include "google/rpc/error_details.pb.h"

namespace nightshift {
namespace {

google::rpc::ErrorInfo InfoOf(const google::rpc::Status& status) {
  google::rpc::ErrorInfo info;
  EXPECT_GT(status.details_size(), 0);
  EXPECT_TRUE(status.details(0).UnpackTo(&info));
  return info;
}

TEST(RpcErrorTest, CarriesReasonDomainAndMetadata) {
  const absl::Status error = MakeError(absl::StatusCode::kNotFound, reason::kJobNotFound,
                                       "job x does not exist", {{"job", "x"}});
  EXPECT_THAT(error, StatusIs(absl::StatusCode::kNotFound, "job x"));
  const google::rpc::Status wire = ToRpcStatus(error);
  EXPECT_EQ(wire.code(), 5);
  EXPECT_EQ(wire.message(), "job x does not exist");
  EXPECT_EQ(InfoOf(wire).reason(), "JOB_NOT_FOUND");
  EXPECT_EQ(InfoOf(wire).domain(), "nightshift.v1");
  EXPECT_EQ(InfoOf(wire).metadata().at("job"), "x");
}

TEST(RpcErrorTest, EveryErrorHasAReason) {
  EXPECT_EQ(InfoOf(ToRpcStatus(absl::DataLossError("bad"))).reason(), "RECORD_CORRUPT");
  EXPECT_EQ(InfoOf(ToRpcStatus(absl::AbortedError("again"))).reason(), "ABORTED");
  EXPECT_EQ(ErrorReason(absl::InternalError("")), "INTERNAL");
}

TEST(RpcErrorTest, NamesTheFieldsThatAreWrong) {
  const absl::Status error =
      MakeFieldError(reason::kFieldOutOfRange, {{"spec.top_p", "is 3"}, {"spec.top_k", "is -1"}});
  EXPECT_THAT(error,
              StatusIs(absl::StatusCode::kInvalidArgument, "spec.top_p: is 3 (2 violations"));
  const google::rpc::Status wire = ToRpcStatus(error);
  google::rpc::BadRequest bad_request;
  ASSERT_EQ(wire.details_size(), 2);
  ASSERT_TRUE(wire.details(1).UnpackTo(&bad_request));
  EXPECT_EQ(bad_request.field_violations(1).field(), "spec.top_k");
}

TEST(RpcErrorTest, ListsAtMostTwentyFieldsAndCountsTheRest) {
  std::vector<FieldViolation> violations(100, {std::string(500, 'f'), std::string(5000, 'd')});
  const google::rpc::Status wire = ToRpcStatus(MakeFieldError(reason::kFieldInvalid, violations));
  EXPECT_LE(wire.ByteSizeLong(), 4096U);
  google::rpc::BadRequest bad_request;
  ASSERT_EQ(wire.details_size(), 2);
  ASSERT_TRUE(wire.details(1).UnpackTo(&bad_request));
  EXPECT_EQ(bad_request.field_violations_size(), 20);
  EXPECT_EQ(InfoOf(wire).metadata().at("violations"), "100");
}

TEST(RpcErrorTest, StaysBelowTheCapWhateverItHolds) {
  std::map<std::string, std::string> metadata;
  for (int i = 0; i < 100; ++i) {
    metadata[absl::StrCat("key", i)] = std::string(5000, 'v');
  }
  const absl::Status error = WithRetryDelay(
      MakeError(absl::StatusCode::kInternal, "REASON", std::string(9000, 'm'), metadata), 1500);
  const google::rpc::Status wire = ToRpcStatus(error);
  EXPECT_LE(wire.ByteSizeLong(), 4096U);
  EXPECT_EQ(InfoOf(wire).reason(), "REASON");
}

TEST(RpcErrorTest, MessagesAreAlwaysUtf8) {
  const google::rpc::Status wire = ToRpcStatus(absl::InternalError("a\xFF\xC3\xA4\xE2\x82"));
  EXPECT_EQ(wire.message().substr(0, 4), "a?\xC3\xA4");
  EXPECT_EQ(FindInvalidUtf8(wire.message()), absl::string_view::npos);
  EXPECT_EQ(CleanText("\xC3\xA4\xC3\xA4", 3), "\xC3\xA4");
}

TEST(RpcErrorTest, TellsHowLongToWait) {
  const google::rpc::Status wire =
      ToRpcStatus(WithRetryDelay(absl::UnavailableError("draining"), 1500));
  google::rpc::RetryInfo retry;
  ASSERT_EQ(wire.details_size(), 2);
  ASSERT_TRUE(wire.details(1).UnpackTo(&retry));
  EXPECT_EQ(retry.retry_delay().seconds(), 1);
  EXPECT_EQ(retry.retry_delay().nanos(), 500'000'000);
}

}  // namespace
}  // namespace nightshift
