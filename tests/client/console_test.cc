// What people read: errors, progress, tables.
#include "client/console.h"

#include <tuple>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "client/job_text.h"
#include "client/policy_text.h"
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

// The server lists 20 of them at most, and says how many there are.
TEST(ConsoleTest, BadLinesAreCountedByTheServersNumberAndToldApart) {
  google::rpc::ErrorInfo info;
  info.set_reason("INPUT_MALFORMED");
  (*info.mutable_metadata())["violations"] = "3000";
  google::rpc::BadRequest bad_request;
  for (const int line : {12, 1, 2, 13, 14}) {
    auto* violation = bad_request.add_field_violations();
    violation->set_field("line " + std::to_string(line));
    violation->set_description("is bad");
  }
  google::rpc::Status wire;
  wire.add_details()->PackFrom(info);
  wire.add_details()->PackFrom(bad_request);
  EXPECT_EQ(ErrorText(FromRpcStatus("submit in.jsonl",
                                    grpc::Status(grpc::StatusCode::INVALID_ARGUMENT,
                                                 "line 12: is bad (3000 violations)",
                                                 wire.SerializeAsString())),
                      ""),
            "submit in.jsonl: line 12: is bad (3000 violations) (line 1: is bad; line 2: is bad; "
            "line 13: is bad; and 2996 more) [INVALID_ARGUMENT INPUT_MALFORMED]");
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
  job.mutable_progress()->mutable_eta_low()->set_seconds(185);
  job.mutable_progress()->mutable_eta_high()->set_seconds(250);
  EXPECT_EQ(ProgressText(job, false),
            "500/1,000, 2 failed, 531 tokens/s, ETA 3m20s (3m05s to 4m10s)");
  job.mutable_progress()->mutable_eta()->set_seconds(0);
  EXPECT_EQ(ProgressText(job, false), "500/1,000, 2 failed, 531 tokens/s, ETA under 4m10s");
  job.mutable_progress()->mutable_eta_high()->set_seconds(0);
  EXPECT_EQ(ProgressText(job, false), "500/1,000, 2 failed, 531 tokens/s");
  job.set_state(v1::JOB_STATE_QUEUED);
  EXPECT_EQ(ProgressText(job, false), "500/1,000, 2 failed, queued");
  job.set_waits_for_model("opening /disk/m/manifest.json: No such file or directory");
  EXPECT_EQ(ProgressText(job, false),
            "500/1,000, 2 failed, queued, waits for its model: opening /disk/m/manifest.json: No "
            "such file or directory");
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

TEST(JobTextTest, ATableOfJobsSaysWhatTheyWaitForIfAnyDoes) {
  v1::Job job = RunningJob();
  job.mutable_spec()->set_model("m");
  const absl::Time now = absl::FromUnixSeconds(job.create_time().seconds());
  EXPECT_EQ(JobsTable({job}, now),
            "JOB     STATE    DONE      FAILED  MODEL  CREATED\n"
            "jobs/a  running  500/1000  2       m      0s ago\n");
  v1::Job waiting = job;
  waiting.set_state(v1::JOB_STATE_QUEUED);
  waiting.set_waits_for("jobs/b");
  waiting.set_waits_for_model("no disk");
  EXPECT_EQ(JobsTable({job, waiting}, now),
            "JOB     STATE    DONE      FAILED  MODEL  CREATED  WAITS FOR\n"
            "jobs/a  running  500/1000  2       m      0s ago\n"
            "jobs/a  queued   500/1000  2       m      0s ago   jobs/b; its model: no disk\n");
  EXPECT_NE(JobText(waiting, now).find("waits for   jobs/b; its model: no disk\n"),
            std::string::npos);
  EXPECT_EQ(nlohmann::json::parse(JobJson(waiting))["waits_for_model"], "no disk");
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

TEST(JobTextTest, TellsThePredictionBesideTheObservation) {
  v1::Job job = RunningJob();
  *job.mutable_report() = StreamingReport();
  EXPECT_EQ(JobText(job, absl::UnixEpoch()).find("prediction"), std::string::npos);
  v1::PredictionReport& prediction = *job.mutable_report()->mutable_prediction();
  prediction.set_wall_us(69'000'000);
  prediction.set_predicted_wall_us(66'240'000);
  prediction.set_tokens_per_s(100);
  prediction.set_predicted_tokens_per_s(104.2);
  prediction.set_constraint("waits for read 90 % of the time");
  prediction.set_planned_requests(64);
  prediction.set_planned_seconds(66);
  prediction.set_planned_tokens_per_s(105);
  v1::PoolReport& pool = *prediction.add_pools();
  pool.set_name("host");
  pool.set_predicted_bytes(1 << 20);
  pool.set_observed_bytes(2 << 20);
  const std::string text = JobText(job, absl::UnixEpoch());
  EXPECT_NE(text.find("sweeps 69 s, 66.2 s predicted (-4 %); 100 tokens/s, 104.2 predicted"),
            std::string::npos)
      << text;
  EXPECT_NE(text.find("host 2.0 MiB, 1.0 MiB predicted"), std::string::npos) << text;
  EXPECT_NE(text.find("64 requests in 1m06s, 105 tokens/s; waits for read 90 %"), std::string::npos)
      << text;
  const auto json = nlohmann::json::parse(JobJson(job));
  EXPECT_EQ(json["report"]["prediction"]["predicted_us"], 66'240'000);
  EXPECT_EQ(json["report"]["prediction"]["pools"][0]["observed_bytes"], 2 << 20);
}

v1::Policy PlannedPolicy() {
  v1::Policy policy;
  policy.set_model("smollm2");
  policy.set_compute_type("bf16");
  policy.set_planned(true);
  policy.mutable_hardware()->set_name("this machine");
  policy.mutable_hardware()->set_date("2025-06-01T10:00:00Z");
  policy.mutable_hardware()->set_stale("memory was 4.0 GiB, is 2.0 GiB");
  v1::PolicyHardware::Factor& factor = *policy.mutable_hardware()->add_factors();
  factor.set_lane("compute");
  factor.set_factor(1.25);
  factor.set_sweeps(33);
  policy.set_requests(1000);
  policy.set_prompt_tokens(64);
  policy.set_output_tokens(32);
  policy.set_block_requests(256);
  policy.set_weights("BF16");
  v1::PolicyShares& shares = *policy.add_shares();
  shares.set_what("weights");
  shares.set_device(0.75);
  shares.set_disk(0.25);
  v1::PolicyTier& tier = *policy.add_tiers();
  tier.set_tier("host");
  tier.set_bytes(int64_t{3} << 30);
  tier.set_capacity_bytes(int64_t{4} << 30);
  tier.set_seconds_per_gib(2.5);
  policy.set_seconds(200);
  policy.set_binding("waits for read 81 % of the time");
  policy.set_shadow_price("8 GiB more host memory would give +41 %");
  return policy;
}

TEST(PolicyTextTest, SaysWhatRunsOnWhatAndWhatBinds) {
  const std::string text = PolicyText(PlannedPolicy());
  for (const char* part :
       {"smollm2, bf16", "this machine of 2025-06-01T10:00:00Z", "memory was 4.0 GiB",
        "compute takes 1.25 of the measured time (33 sweeps)", "1,000 requests of 64 prompt",
        "BF16: device 75 %, disk 25 %", "3.0 GiB of 4.0 GiB; one more GiB would save 2.5 s",
        "3m20s", "waits for read 81 % of the time", "8 GiB more host memory would give +41 %"}) {
    EXPECT_NE(text.find(part), std::string::npos) << part << "\n" << text;
  }
  const auto json = nlohmann::json::parse(PolicyJson(PlannedPolicy()));
  EXPECT_EQ(json["plan"]["shares"]["weights"]["disk"], 0.25);
  EXPECT_EQ(json["hardware"]["factors"]["compute"]["sweeps"], 33);
  EXPECT_TRUE(json["reason"].is_null());
}

TEST(PolicyTextTest, SaysThatTheWorkOfAllIsNotTold) {
  v1::Policy policy = PlannedPolicy();
  policy.clear_requests();
  policy.clear_seconds();
  const std::string text = PolicyText(policy);
  EXPECT_NE(text.find("of which admins are told how much it is"), std::string::npos) << text;
  EXPECT_EQ(text.find("0 requests"), std::string::npos) << text;
  const auto json = nlohmann::json::parse(PolicyJson(policy));
  EXPECT_TRUE(json["plan"]["requests"].is_null() && json["plan"]["seconds"].is_null());
  EXPECT_EQ(json["plan"]["block_requests"], 256);
}

TEST(PolicyTextTest, WithoutAPlanSaysWhy) {
  v1::Policy policy;
  policy.set_reason("there is no profile; run nightshift calibrate");
  EXPECT_NE(PolicyText(policy).find("run nightshift calibrate"), std::string::npos);
  const auto json = nlohmann::json::parse(PolicyJson(policy));
  EXPECT_EQ(json["planned"], false);
  EXPECT_TRUE(json["plan"].is_null());
}

TEST(PolicyTextTest, ExplainsWhatWasRejected) {
  v1::ExplainPolicyResponse explanation;
  *explanation.mutable_policy() = PlannedPolicy();
  for (const double gain : {0.41, 0.1}) {
    v1::PolicyRelief& relief = *explanation.add_reliefs();
    relief.set_what(gain > 0.2 ? "8 GiB more host memory" : "twice the rate of read");
    relief.set_gain(gain);
  }
  v1::PolicyAlternative& slower = *explanation.add_alternatives();
  slower.set_what("a block of 72");
  slower.set_slowdown(0.12);
  slower.set_why("waits for read 95 % of the time");
  v1::PolicyAlternative& impossible = *explanation.add_alternatives();
  impossible.set_what("weights in F32");
  impossible.set_why("host lacks 2 GiB");
  const std::string text = ExplanationText(explanation);
  for (const char* part : {"twice the rate of read would give +10 %",
                           "a block of 72: takes 12 % longer; waits for read 95 % of the time",
                           "weights in F32: host lacks 2 GiB"}) {
    EXPECT_NE(text.find(part), std::string::npos) << part << "\n" << text;
  }
  const auto json = nlohmann::json::parse(ExplanationJson(explanation));
  EXPECT_EQ(json["alternatives"][0]["slowdown"], 0.12);
  EXPECT_TRUE(json["alternatives"][1]["slowdown"].is_null());
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
