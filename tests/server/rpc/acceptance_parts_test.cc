// What acceptance is made of: specs, page tokens, kept uploads and the pass over an input.
#include <cmath>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include "absl/strings/str_cat.h"

#include "kernels/base/checksum.h"
#include "server/rpc/input_scan.h"
#include "server/rpc/job_spec.h"
#include "server/rpc/kept_uploads.h"
#include "server/rpc/page_token.h"
#include "server/rpc/status_bridge.h"
#include "tests/support/fake_clock.h"
#include "tests/support/status_matchers.h"
#include "tests/support/temporary_folder.h"

#include "google/rpc/error_details.pb.h"
#include "google/rpc/status.pb.h"

namespace nightshift {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

TEST(JobSpecTest, KeepsWhatTheCallerSaid) {
  v1::JobSpec spec;
  spec.mutable_sampling()->set_temperature(0.7);
  spec.mutable_sampling()->set_seed(0);
  spec.mutable_prompt_options()->set_add_generation_prompt(false);
  spec.set_priority(v1::PRIORITY_HIGH);
  const v1::JobSpec resolved = ResolveSpec(spec, {.model = "m", .seed = 9});
  EXPECT_EQ(resolved.sampling().temperature(), 0.7);
  EXPECT_EQ(resolved.sampling().seed(), 0);
  EXPECT_FALSE(resolved.sampling().has_max_output_tokens());
  EXPECT_FALSE(resolved.prompt_options().add_generation_prompt());
  EXPECT_EQ(resolved.priority(), v1::PRIORITY_HIGH);
  EXPECT_EQ(resolved.model(), "m");
}

TEST(JobSpecTest, RefusesNumbersThatAreNone) {
  v1::JobSpec spec;
  spec.mutable_sampling()->set_temperature(std::nan(""));
  EXPECT_THAT(CheckSpec(spec, {}, 0),
              StatusIs(absl::StatusCode::kInvalidArgument, "spec.sampling.temperature"));
}

TEST(JobSpecTest, BoundsLabels) {
  v1::JobSpec spec;
  for (int i = 0; i < 17; ++i) {
    (*spec.mutable_labels())[absl::StrCat("key-", i)] = "value";
  }
  EXPECT_THAT(CheckSpec(spec, {}, 0), StatusIs(absl::StatusCode::kInvalidArgument, "17 labels"));
  spec.clear_labels();
  (*spec.mutable_labels())[std::string(65, 'k')] = "value";
  EXPECT_THAT(CheckSpec(spec, {}, 0), StatusIs(absl::StatusCode::kInvalidArgument, "65 bytes"));
}

TEST(JobSpecTest, RefusesTemplateArgumentsThatNoRowCouldUse) {
  v1::JobSpec spec;
  spec.mutable_prompt_options()->set_chat_template_kwargs(R"({"enable_thinking": false})");
  EXPECT_OK(CheckSpec(spec, {}, 0));
  for (const char* arguments : {"{", "[]", R"({"messages": []})", "\xFF"}) {
    spec.mutable_prompt_options()->set_chat_template_kwargs(arguments);
    EXPECT_THAT(CheckSpec(spec, {}, 0), StatusIs(absl::StatusCode::kInvalidArgument,
                                              "spec.prompt_options.chat_template_kwargs"));
  }
}

TEST(JobSpecTest, WantsTheNameOfAJobToRunAfter) {
  v1::JobSpec spec;
  spec.set_after_job("jobs/a");
  EXPECT_OK(CheckSpec(spec, {}, 0));
  for (const char* name : {"a", "jobs/", "jobs/A b", "jobs/a/b"}) {
    spec.set_after_job(name);
    EXPECT_THAT(CheckSpec(spec, {}, 0),
                StatusIs(absl::StatusCode::kInvalidArgument, "spec.after_job"));
  }
}

std::vector<google::protobuf::Any> DetailsOf(const grpc::Status& status) {
  google::rpc::Status wire;
  EXPECT_TRUE(wire.ParseFromString(status.error_details()));
  return {wire.details().begin(), wire.details().end()};
}

TEST(StatusBridgeTest, OfABrokenInvariantOnlyTheIncidentIsTold) {
  const grpc::Status status = ToGrpcStatus(absl::InternalError("secret of row 7"));
  EXPECT_EQ(status.error_code(), grpc::StatusCode::INTERNAL);
  EXPECT_EQ(status.error_message().find("secret"), std::string::npos);
  google::rpc::ErrorInfo info;
  ASSERT_TRUE(DetailsOf(status)[0].UnpackTo(&info));
  EXPECT_EQ(info.reason(), "INTERNAL");
  EXPECT_EQ(info.metadata().at("incident").size(), 16U);
}

TEST(StatusBridgeTest, WhatMayPassSaysWhenToComeBack) {
  for (const auto& [status, reason] :
       {std::pair(absl::UnavailableError("the store is busy"), "STORE_BUSY"),
        std::pair(absl::ResourceExhaustedError("4096 reads wait"), "BACKLOG_FULL")}) {
    const std::vector<google::protobuf::Any> details = DetailsOf(ToGrpcStatus(status));
    google::rpc::ErrorInfo info;
    google::rpc::RetryInfo retry;
    ASSERT_EQ(details.size(), 2U);
    EXPECT_TRUE(details[0].UnpackTo(&info) && info.reason() == reason) << info.reason();
    EXPECT_TRUE(details[1].UnpackTo(&retry) && retry.retry_delay().seconds() > 0);
  }
  EXPECT_EQ(DetailsOf(ToGrpcStatus(absl::AbortedError("etag"))).size(), 1U);
}

TEST(PageTokenTest, ReadsWhatItWrote) {
  const PageTokens tokens;
  const std::string token = tokens.Write("list", {-5, "a/b\nc"});
  ASSERT_OK_AND_ASSIGN(const PagePosition position, tokens.Read("list", token));
  EXPECT_EQ(position.number, -5);
  EXPECT_EQ(position.text, "a/b\nc");
}

TEST(PageTokenTest, RefusesEveryChangedByte) {
  const PageTokens tokens;
  const std::string token = tokens.Write("list", {7, "x"});
  for (size_t i = 0; i < token.size(); ++i) {
    std::string changed = token;
    changed[i] = changed[i] == 'A' ? 'B' : 'A';
    EXPECT_FALSE(tokens.Read("list", changed).ok() && changed != token) << i;
  }
  EXPECT_FALSE(tokens.Read("other list", token).ok());
  EXPECT_FALSE(PageTokens().Read("list", token).ok());
  EXPECT_FALSE(tokens.Read("list", "").ok());
}

TEST(KeptUploadsTest, AnUploadWhoseFileMovedIsKeptNoMore) {
  const TemporaryFolder uploads_folder;
  const TemporaryFolder jobs_folder;
  FakeClock clock;
  KeptUploads uploads({.directory = uploads_folder.path()}, clock);
  const std::string id = "0198c0de-0000-7000-8000-0000000000aa";
  auto upload = uploads.Begin(id, 0);
  ASSERT_OK(upload);
  ASSERT_OK((*upload)->Append("a row\n"));
  ASSERT_OK((*upload)->Sync());
  uploads.Advance(id, (*upload)->durable_bytes());
  ASSERT_OK((*upload)->Publish(jobs_folder.path(), "job"));
  EXPECT_EQ(uploads.Return(id, *std::move(upload)), 0);
  EXPECT_FALSE(uploads.Find(id).has_value());
  EXPECT_OK(uploads.Begin(id, 0));
}

class InputScanTest : public ::testing::Test {
 protected:
  InputScanTest() : fd_(::memfd_create("input", MFD_CLOEXEC)) {}
  ~InputScanTest() override { ::close(fd_); }

  absl::Status Scan(const std::string& input, int64_t max_rows = 1000) {
    EXPECT_EQ(::write(fd_, input.data(), input.size()), static_cast<ssize_t>(input.size()));
    InputScanOptions options;
    options.fd = fd_;
    options.max_rows = max_rows;
    options.model = "m";
    options.scratch_directory = folder_.path();
    options.stop = &stop_;
    auto scan = InputScan::Run(std::move(options));
    if (scan.ok()) {
      scan_ = *std::move(scan);
    }
    return scan.status();
  }
  std::vector<NewRow> Rows(int64_t rows_per_batch) {
    std::vector<NewRow> rows;
    batches_.clear();
    EXPECT_OK(scan_->ForEachBatch(rows_per_batch, [&](const std::vector<NewRow>& batch) {
      batches_.push_back(batch.size());
      rows.insert(rows.end(), batch.begin(), batch.end());
      return absl::OkStatus();
    }));
    return rows;
  }
  static std::string ErrorOf(const NewRow& row) {
    v1::Result result;
    EXPECT_TRUE(row.error_body.has_value() && result.ParseFromString(*row.error_body));
    return result.error().message();
  }

  TemporaryFolder folder_;
  const int fd_;
  std::atomic<bool> stop_{false};
  std::unique_ptr<InputScan> scan_;
  std::vector<size_t> batches_;
};

TEST_F(InputScanTest, GivesRowsInOrderAndInBatches) {
  std::string input;
  for (int i = 0; i < 5; ++i) {
    input += absl::StrCat("{\"prompt\":\"", i, "\"}\n");
  }
  ASSERT_OK(Scan(input));
  const std::vector<NewRow> rows = Rows(2);
  ASSERT_EQ(rows.size(), 5U);
  EXPECT_THAT(batches_, ElementsAre(2, 2, 1));
  for (size_t i = 0; i < rows.size(); ++i) {
    EXPECT_EQ(rows[i].index, static_cast<int64_t>(i));
    EXPECT_EQ(rows[i].line, static_cast<int64_t>(i) + 1);
    const std::string row = absl::StrCat("{\"prompt\":\"", i, "\"}");
    EXPECT_EQ(rows[i].crc, Crc32c(std::as_bytes(std::span(row))));
    EXPECT_EQ(rows[i].offset, static_cast<int64_t>(i) * 15);
    EXPECT_EQ(rows[i].length, 14);
  }
  EXPECT_OK(scan_->Rejection());
}

TEST_F(InputScanTest, LetsTheFirstUseOfAnIdStandEvenIfItsRowIsBad) {
  ASSERT_OK(
      Scan("{\"id\":\"a\"}\n{\"id\":\"a\",\"prompt\":\"x\"}\n{\"id\":\"b\",\"prompt\":\"x\"}"));
  const std::vector<NewRow> rows = Rows(10);
  EXPECT_THAT(ErrorOf(rows[0]), HasSubstr("neither prompt nor messages"));
  EXPECT_EQ(ErrorOf(rows[1]), "id of line 2 was used before in line 1");
  EXPECT_FALSE(rows[2].error_body.has_value());
  EXPECT_EQ(scan_->num_invalid(), 2);
  EXPECT_THAT(scan_->Rejection(), StatusIs(absl::StatusCode::kInvalidArgument, "line 1"));
}

TEST_F(InputScanTest, AnswersALineNobodyCanReadInTheFormOfItsNeighbours) {
  ASSERT_OK(
      Scan(R"({"custom_id":"a","method":"POST","url":"/v1/completions","body":{"prompt":"x"}})"
           "\noops\n"));
  const std::vector<NewRow> rows = Rows(10);
  v1::Result result;
  ASSERT_TRUE(result.ParseFromString(rows[1].error_body.value()));
  EXPECT_EQ(result.form(), v1::REQUEST_FORM_OPENAI_COMPLETION);
  EXPECT_EQ(result.line(), 2);
}

TEST_F(InputScanTest, BoundsTheNumberOfRows) {
  EXPECT_THAT(Scan("{}\n{}\n{}\n", 2),
              StatusIs(absl::StatusCode::kInvalidArgument, "more than 2 rows"));
}

TEST_F(InputScanTest, EndsWhenToldTo) {
  stop_.store(true);
  EXPECT_THAT(Scan("{}\n"), StatusIs(absl::StatusCode::kUnavailable, "stopping"));
}

}  // namespace
}  // namespace nightshift
