// What people read: errors, progress, tables.
#include "client/console.h"

#include <tuple>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "client/job_text.h"
#include "client/progress.h"
#include "client/rpc_error.h"
#include "client/session.h"

#include "google/rpc/error_details.pb.h"

namespace nightshift {
namespace {

absl::Status FieldError() {
  google::rpc::ErrorInfo info;
  info.set_reason("FIELD_OUT_OF_RANGE");
  google::rpc::BadRequest bad_request;
  auto* first = bad_request.add_field_violations();
  first->set_field("spec.sampling.top_p");
  first->set_description("is 2, allowed (0, 1]");
  auto* second = bad_request.add_field_violations();
  second->set_field("spec.labels");
  second->set_description("are 17, at most 16");
  google::rpc::Status wire;
  wire.add_details()->PackFrom(info);
  wire.add_details()->PackFrom(bad_request);
  return FromRpcStatus("submit", grpc::Status(grpc::StatusCode::INVALID_ARGUMENT,
                                              "spec.sampling.top_p: is 2,\nallowed (0, 1]",
                                              wire.SerializeAsString()));
}

TEST(ConsoleTest, AnErrorIsOneLineWithReasonFieldsAndNextStep) {
  EXPECT_EQ(ErrorText(FieldError(), "correct it"),
            "submit: spec.sampling.top_p: is 2, allowed (0, 1] (spec.labels: are 17, at most 16) "
            "[INVALID_ARGUMENT FIELD_OUT_OF_RANGE]; correct it");
}

TEST(ConsoleTest, AnErrorInJsonHasItsPartsApart) {
  const auto error = nlohmann::json::parse(ErrorJson(FieldError(), "correct it"))["error"];
  EXPECT_EQ(error["code"], "INVALID_ARGUMENT");
  EXPECT_EQ(error["reason"], "FIELD_OUT_OF_RANGE");
  EXPECT_EQ(error["fields"][1]["field"], "spec.labels");
  EXPECT_EQ(error["next_step"], "correct it");
}

TEST(ConsoleTest, TextFromOutsideCannotMoveTheCursor) {
  EXPECT_EQ(OneLine("a\x1b[2J\r\nb\x7f"), "a [2J  b ");
}

TEST(NextStepTest, SaysWhatToDoAboutCommonErrors) {
  CommandLine run;
  run.command = Command::kRun;
  const auto step = [&](absl::StatusCode code, const char* reason) {
    return NextStepOf(MakeClientError(code, reason, "x"), run);
  };
  EXPECT_NE(step(absl::StatusCode::kUnavailable, "NOT_LISTENING").find("--model PACK"),
            std::string::npos);
  EXPECT_NE(step(absl::StatusCode::kNotFound, "MODEL_NOT_FOUND").find("nightshift models"),
            std::string::npos);
  EXPECT_NE(step(absl::StatusCode::kNotFound, "JOB_NOT_FOUND").find("nightshift list"),
            std::string::npos);
  EXPECT_NE(step(absl::StatusCode::kAlreadyExists, "REQUEST_ID_REUSED").find("--run-key"),
            std::string::npos);
  EXPECT_NE(step(absl::StatusCode::kResourceExhausted, "BACKLOG_FULL").find("later"),
            std::string::npos);
}

v1::Job RunningJob() {
  v1::Job job;
  job.set_name("jobs/a");
  job.set_state(v1::JOB_STATE_RUNNING);
  job.mutable_counts()->set_total(1000);
  job.mutable_counts()->set_succeeded(498);
  job.mutable_counts()->set_failed(2);
  job.mutable_counts()->set_running(64);
  return job;
}

TEST(ProgressTest, ShowsWhatIsKnown) {
  v1::Job job = RunningJob();
  EXPECT_EQ(ProgressText(job, false), "500/1,000, 2 failed");
  job.mutable_progress()->set_tokens_per_second(531.4);
  job.mutable_progress()->mutable_eta()->set_seconds(200);
  EXPECT_EQ(ProgressText(job, true),
            "[############............] 500/1,000, 2 failed, 531 tokens/s, ETA 3m20s");
  job.set_state(v1::JOB_STATE_QUEUED);
  EXPECT_EQ(ProgressText(job, false), "500/1,000, 2 failed, queued");
}

TEST(ProgressTest, EstimatesWhatTheServerDoesNotSay) {
  ProgressEstimate estimate;
  v1::Job job = RunningJob();
  const absl::Time start = absl::FromUnixSeconds(1'750'000'000);
  estimate.Estimate(job, start);
  job.mutable_counts()->set_succeeded(598);
  job.mutable_tokens()->set_output(2000);
  job = estimate.Estimate(job, start + absl::Seconds(10));
  EXPECT_EQ(job.progress().tokens_per_second(), 200);
  EXPECT_EQ(job.progress().eta().seconds(), 40);  // 400 left at 10 a second
}

TEST(ProgressTest, WritesNumbersForPeople) {
  EXPECT_EQ(GroupedNumber(0), "0");
  EXPECT_EQ(GroupedNumber(999), "999");
  EXPECT_EQ(GroupedNumber(-123456), "-123,456");
  EXPECT_EQ(GroupedNumber(1234567), "1,234,567");
  EXPECT_EQ(ShortDuration(absl::Seconds(59)), "59s");
  EXPECT_EQ(ShortDuration(absl::Seconds(3599)), "59m59s");
  EXPECT_EQ(ShortDuration(absl::Hours(47)), "47h00m");
  EXPECT_EQ(ShortDuration(absl::Hours(50)), "2d02h");
  EXPECT_EQ(ByteSize(1023), "1023 B");
  EXPECT_EQ(ByteSize(3 << 19), "1.5 MiB");
}

TEST(JobTextTest, AJobInJsonHasNumbersAndStates) {
  v1::Job job = RunningJob();
  job.mutable_create_time()->set_seconds(1'750'000'000);
  const auto json = nlohmann::json::parse(JobJson(job));
  EXPECT_EQ(json["name"], "jobs/a");
  EXPECT_EQ(json["state"], "running");
  EXPECT_EQ(json["counts"]["failed"], 2);
  EXPECT_EQ(json["create_time"], "2025-06-15T15:06:40.000Z");
  EXPECT_EQ(json["end_time"], nullptr);
  EXPECT_EQ(json["error"], nullptr);
}

v1::Report StreamingReport() {
  v1::Report report;
  report.set_sweeps(7);
  report.set_wall_us(2'500'000);
  report.set_bottleneck("read 93 %");
  for (const auto& [name, busy, waited] :
       {std::tuple("read", 0.93, 0.52), std::tuple("compute", 0.41, 0.0),
        std::tuple("write", 0.001, 0.0)}) {
    v1::LaneReport& lane = *report.add_lanes();
    lane.set_name(name);
    lane.set_busy_share(busy);
    lane.set_waited_share(waited);
    lane.set_bytes(4096);
  }
  return report;
}

TEST(JobTextTest, TellsWhatAJobWaitedForOnceItHasRun) {
  v1::Job job = RunningJob();
  EXPECT_EQ(JobText(job, absl::UnixEpoch()).find("bottleneck"), std::string::npos);
  EXPECT_EQ(nlohmann::json::parse(JobJson(job))["report"], nullptr);
  *job.mutable_report() = StreamingReport();
  EXPECT_NE(JobText(job, absl::UnixEpoch())
                .find("bottleneck  read 93 % (compute 41 %, waited for read 52 % of the time)\n"),
            std::string::npos)
      << JobText(job, absl::UnixEpoch());
  const auto report = nlohmann::json::parse(JobJson(job))["report"];
  EXPECT_EQ(report["sweeps"], 7);
  EXPECT_EQ(report["seconds"], 2.5);
  EXPECT_EQ(report["bottleneck"], "read 93 %");
  ASSERT_EQ(report["lanes"].size(), 3U);
  EXPECT_EQ(report["lanes"][0]["name"], "read");
  EXPECT_EQ(report["lanes"][0]["busy_share"], 0.93);
  EXPECT_EQ(report["lanes"][0]["waited_share"], 0.52);
  EXPECT_EQ(report["lanes"][0]["bytes"], 4096);
}

TEST(JobTextTest, AReportWithoutWaitingIsTheBottleneckAlone) {
  v1::Report report;
  report.set_bottleneck("compute 99 %");
  report.add_lanes()->set_name("compute");
  report.mutable_lanes(0)->set_busy_share(0.99);
  EXPECT_EQ(BottleneckText(report), "compute 99 %");
}

TEST(JobTextTest, StatesReadBack) {
  for (int state = v1::JOB_STATE_QUEUED; state <= v1::JOB_STATE_EXPIRED; ++state) {
    EXPECT_EQ(ParseState(StateText(static_cast<v1::JobState>(state))), state);
  }
  EXPECT_EQ(ParseState("nonsense"), v1::JOB_STATE_UNSPECIFIED);
}

TEST(JobTextTest, ATableIsAlignedAndCleanOfControlCharacters) {
  v1::Model good;
  good.set_name("smollm2");
  good.set_architecture("llama");
  good.set_parameters(134515008);
  good.set_bytes(100 << 20);
  good.set_context_tokens(8192);
  good.set_has_tokenizer(true);
  good.set_has_chat_template(true);
  v1::Model bad;
  bad.set_name("x");
  bad.set_error("checksum\nmismatch");
  EXPECT_EQ(ModelsTable({good, bad}),
            "MODEL    ARCHITECTURE  PARAMETERS   SIZE       CONTEXT  STATUS\n"
            "smollm2  llama         134,515,008  100.0 MiB  8,192    ready\n"
            "x                      0            0 B        0        "
            "cannot be served: checksum mismatch\n");
}

}  // namespace
}  // namespace nightshift
