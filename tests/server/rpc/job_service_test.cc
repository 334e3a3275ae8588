#include <cmath>
#include <filesystem>
#include <fstream>
#include <set>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "engine/policy/hardware_file.h"
#include "server/store/sqlite_statement.h"
#include "tests/server/rpc/service_world.h"
#include "tests/support/plain_machines.h"
#include "tests/support/status_matchers.h"

namespace nightshift {
namespace {

using ::grpc::StatusCode;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

using JobServiceTest = ServiceWorld;

TEST_F(JobServiceTest, RunsAJobAndStreamsEachResultOnce) {
  const v1::Job job = Submit(TokenJob(20));
  EXPECT_EQ(job.counts().total(), 20);
  const ResultsRead read = Stream(job.name());
  EXPECT_TRUE(read.status.ok()) << read.status.error_message();
  ASSERT_TRUE(read.ended);
  EXPECT_EQ(read.end.state(), v1::JOB_STATE_SUCCEEDED);
  EXPECT_EQ(read.end.counts().succeeded(), 20);
  std::set<std::string> ids;
  int64_t seq = 0;
  for (const v1::Result& result : read.results) {
    EXPECT_EQ(result.seq(), ++seq);
    EXPECT_TRUE(result.has_completion()) << result.ShortDebugString();
    ids.insert(result.custom_id());
  }
  EXPECT_THAT(ids, SizeIs(20));
}

TEST_F(JobServiceTest, ResolvesWhatTheCallerLeftOpen) {
  const v1::Job job = Submit(TokenJob(1));
  const v1::JobSpec& spec = job.spec();
  EXPECT_EQ(spec.model(), "llama");
  EXPECT_EQ(spec.priority(), v1::PRIORITY_NORMAL);
  EXPECT_EQ(spec.compute_type(), v1::COMPUTE_TYPE_CHOICE_BF16);
  EXPECT_EQ(spec.compression().weights(), v1::COMPRESSION_CHOICE_NONE);
  EXPECT_EQ(spec.compression().kv(), v1::COMPRESSION_CHOICE_NONE);
  EXPECT_EQ(spec.sparse_attention(), 1.0);
  EXPECT_EQ(spec.max_attempts(), 3);
  EXPECT_EQ(spec.sampling().max_output_tokens(), 4);
  EXPECT_TRUE(spec.sampling().has_seed());
  EXPECT_EQ(spec.sampling().temperature(), 0.0);
  EXPECT_FALSE(job.uid().empty());
  EXPECT_GT(job.create_time().seconds(), 0);
}

// The operator has not allowed what changes numbers: auto does not.
TEST_F(JobServiceTest, ResolvesCompressionWhenAJobIsAccepted) {
  v1::SubmitJobRequest request = TokenJob(1);
  const auto resolved = [&](v1::CompressionChoice weights, v1::CompressionChoice kv) {
    request.set_request_id("");
    request.mutable_spec()->mutable_compression()->set_weights(weights);
    request.mutable_spec()->mutable_compression()->set_kv(kv);
    return Submit(request).spec().compression();
  };
  EXPECT_EQ(resolved(v1::COMPRESSION_CHOICE_NONE, v1::COMPRESSION_CHOICE_INT4).kv(),
            v1::COMPRESSION_CHOICE_INT4);
  EXPECT_EQ(resolved(v1::COMPRESSION_CHOICE_AUTO, v1::COMPRESSION_CHOICE_AUTO).kv(),
            v1::COMPRESSION_CHOICE_NONE);
  request.mutable_spec()->mutable_compression()->set_weights(v1::COMPRESSION_CHOICE_INT4);
  v1::Job job;
  const grpc::Status refused = Submit(request, job);
  EXPECT_EQ(refused.error_code(), grpc::StatusCode::FAILED_PRECONDITION);
  EXPECT_THAT(refused.error_message(), HasSubstr("has weights in"));
}

TEST_F(JobServiceTest, GivesTheStoredJobForTheSameRequestAgain) {
  v1::SubmitJobRequest request = TokenJob(3);
  request.set_request_id(MakeUuid(1));
  const v1::Job first = Submit(request);
  const v1::Job again = Submit(request);
  EXPECT_EQ(again.name(), first.name());
  EXPECT_TRUE(again.attached() && !first.attached());
  EXPECT_THAT(List({}).jobs(), SizeIs(1));
  Restart();
  EXPECT_EQ(Submit(request).name(), first.name());
}

TEST_F(JobServiceTest, RefusesAnotherBodyUnderARequestId) {
  v1::SubmitJobRequest request = TokenJob(3);
  request.set_request_id(MakeUuid(1));
  const v1::Job first = Submit(request);
  request.mutable_requests(1)->mutable_tokens()->add_ids(5);
  v1::Job job;
  const grpc::Status status = Submit(request, job);
  EXPECT_THAT(status, Refuses(StatusCode::ALREADY_EXISTS, "REQUEST_ID_REUSED"));
  EXPECT_EQ(DetailsOf(status).metadata["job"], first.name());
}

TEST_F(JobServiceTest, RefusesATakenJobId) {
  Submit(TokenJob(1, "nightly"));
  v1::Job job;
  const grpc::Status status = Submit(TokenJob(2, "nightly"), job);
  EXPECT_THAT(status, Refuses(StatusCode::ALREADY_EXISTS, "JOB_EXISTS"));
  EXPECT_EQ(DetailsOf(status).resource, "jobs/nightly");
}

TEST_F(JobServiceTest, RefusesNumbersThatAnEnumDoesNotHave) {
  constexpr int kUnknown = 77;
  v1::Job job;
  const auto submit = [&](auto change) {
    v1::SubmitJobRequest request = TokenJob(1);
    change(*request.mutable_spec());
    return Submit(request, job);
  };
  const auto refused = Refuses(StatusCode::INVALID_ARGUMENT, "FIELD_INVALID");
  EXPECT_THAT(submit([](auto& spec) {
                spec.set_on_invalid_line(static_cast<v1::OnInvalidLine>(kUnknown));
              }),
              refused);
  EXPECT_THAT(submit([](auto& spec) {
                spec.set_compute_type(static_cast<v1::ComputeTypeChoice>(kUnknown));
              }),
              refused);
  v1::WaitJobRequest wait;
  wait.set_name(Submit(TokenJob(1)).name());
  wait.set_until(static_cast<v1::WaitJobRequest::Until>(kUnknown));
  EXPECT_THAT(Wait(wait, job), refused);
  v1::GetJobRequest get;
  get.set_name(wait.name());
  get.set_view(static_cast<v1::JobView>(kUnknown));
  grpc::ClientContext get_context;
  EXPECT_THAT(jobs_->GetJob(&get_context, get, &job), refused);
  v1::ListJobsRequest list;
  v1::ListJobsResponse jobs;
  list.set_state(static_cast<v1::JobState>(kUnknown));
  list.set_view(static_cast<v1::JobView>(kUnknown));
  grpc::ClientContext list_context;
  const grpc::Status listed = jobs_->ListJobs(&list_context, list, &jobs);
  EXPECT_THAT(listed, refused);
  EXPECT_THAT(DetailsOf(listed).violations, ElementsAre("state", "view"));
}

TEST_F(JobServiceTest, RefusesNumbersOutOfRange) {
  const auto status = [this](auto change) {
    v1::SubmitJobRequest request = TokenJob(1);
    change(*request.mutable_spec()->mutable_sampling());
    v1::Job job;
    return Submit(request, job);
  };
  const auto refused = Refuses(StatusCode::INVALID_ARGUMENT, "FIELD_OUT_OF_RANGE");
  EXPECT_THAT(status([](auto& sampling) { sampling.set_top_p(NAN); }), refused);
  EXPECT_THAT(status([](auto& sampling) { sampling.set_temperature(INFINITY); }), refused);
  EXPECT_THAT(status([](auto& sampling) { sampling.set_max_output_tokens(-1); }), refused);
}

TEST_F(JobServiceTest, TakesAShareOfValuesAndRefusesWhatIsNone) {
  v1::SubmitJobRequest request = TokenJob(1);
  request.mutable_spec()->set_sparse_attention(0.25);
  EXPECT_EQ(Submit(request).spec().sparse_attention(), 0.25);
  for (const double share : {0.0, -0.1, 1.01, double{NAN}}) {
    request.set_request_id("");
    request.mutable_spec()->set_sparse_attention(share);
    v1::Job job;
    const grpc::Status refused = Submit(request, job);
    EXPECT_THAT(refused, Refuses(StatusCode::INVALID_ARGUMENT, "FIELD_OUT_OF_RANGE"));
    EXPECT_THAT(refused.error_message(), HasSubstr("spec.sparse_attention: is"));
  }
}

TEST_F(JobServiceTest, RefusesAModelWhosePackIsDamaged) {
  const std::string pack = folder_.path() + "/models/broken";
  std::filesystem::create_directories(folder_.path() + "/models");
  std::filesystem::copy(TinyPack("llama"), pack, std::filesystem::copy_options::recursive);
  std::ofstream(pack + "/manifest.json") << "{";
  options_.models_directory = folder_.path() + "/models";
  Restart();
  v1::SubmitJobRequest request = TokenJob(1);
  request.mutable_spec()->set_model("broken");
  v1::Job job;
  const grpc::Status status = Submit(request, job);
  EXPECT_THAT(status, Refuses(StatusCode::FAILED_PRECONDITION, "MODEL_UNAVAILABLE"));
  EXPECT_EQ(DetailsOf(status).metadata["model"], "broken");
}

TEST_F(JobServiceTest, AModelThatIsAFileIsRefusedAtTheStart) {
  const std::string file = folder_.path() + "/model.gguf";
  std::ofstream(file) << "GGUF";
  options_.models = {file};
  EXPECT_THAT(Server::Start(options_, {}).status(),
              StatusIs(absl::StatusCode::kInvalidArgument, "model.gguf is a file, not a pack"));
}

TEST_F(JobServiceTest, OptionsAreHeldToWhatTheMachineHas) {
  EXPECT_OK(Server::Check(options_)) << "beside the daemon that runs";
  Options options = options_;
  options.state_directory = folder_.path() + "/socket/state";
  EXPECT_THAT(Server::Check(options), StatusIs(absl::StatusCode::kFailedPrecondition,
                                               folder_.path() + "/socket is no folder"));
  options = options_;
  options.state_directory = folder_.path() + "/new/state";
  options.tiers.spill_folder = folder_.path() + "/none";
  EXPECT_THAT(Server::Check(options), StatusIs(absl::StatusCode::kNotFound, "--spill-folder"));
  options.tiers.spill_folder = options.state_directory;
  EXPECT_OK(Server::Check(options));
  EXPECT_FALSE(std::filesystem::exists(folder_.path() + "/new")) << "asking makes nothing";
  options.hardware = "no such machine";
  EXPECT_THAT(Server::Check(options),
              StatusIs(absl::StatusCode::kNotFound, "--hardware no such machine: "));
  options.hardware.clear();
  options.models.push_back(folder_.path());
  EXPECT_THAT(Server::Check(options), StatusIs(absl::StatusCode::kNotFound, folder_.path()));
}

TEST_F(JobServiceTest, FindsAModelThatWasImportedSinceTheStart) {
  options_.models_directory = folder_.path() + "/models";
  std::filesystem::create_directories(options_.models_directory);
  Restart();
  v1::SubmitJobRequest request = TokenJob(1);
  request.mutable_spec()->set_model("llama_tied");
  v1::Job job;
  EXPECT_THAT(Submit(request, job), Refuses(StatusCode::NOT_FOUND, "MODEL_NOT_FOUND"));
  std::filesystem::copy(TinyPack("llama_tied"), options_.models_directory + "/llama_tied",
                        std::filesystem::copy_options::recursive);
  EXPECT_TRUE(Submit(request, job).ok());
}

TEST_F(JobServiceTest, ABasicViewHasNeitherSpecNorReport) {
  v1::GetJobRequest request;
  request.set_name(WaitForEnd(Submit(TokenJob(2)).name()).name());
  request.set_view(v1::JOB_VIEW_BASIC);
  v1::Job basic;
  grpc::ClientContext context;
  ASSERT_TRUE(jobs_->GetJob(&context, request, &basic).ok());
  v1::Job full;
  ASSERT_TRUE(Get(request.name(), full).ok());
  EXPECT_TRUE(full.has_spec() && full.has_report());
  full.clear_spec();
  full.clear_report();
  EXPECT_EQ(basic.DebugString(), full.DebugString());
  v1::ListJobsRequest list;
  list.set_view(v1::JOB_VIEW_BASIC);
  ASSERT_THAT(List(list).jobs(), SizeIs(1));
  EXPECT_FALSE(List(list).jobs(0).has_spec());
}

// Each of them fits into a message, all together do not.
TEST_F(JobServiceTest, APageOfLargeSpecsEndsBeforeItsMessageIsTooLarge) {
  v1::SubmitJobRequest request = TokenJob(1);
  request.mutable_spec()->mutable_prompt_options()->set_chat_template_kwargs(
      absl::StrCat("{\"a\": \"", std::string(60'000, 'x'), "\"}"));
  for (int i = 0; i < 80; ++i) {
    Submit(request);
  }
  v1::ListJobsRequest list;
  list.set_page_size(1000);
  std::set<std::string> names;
  int num_pages = 0;
  do {
    const v1::ListJobsResponse page = List(list);
    EXPECT_LT(page.ByteSizeLong(), size_t{4} << 20U);
    for (const v1::Job& job : page.jobs()) {
      EXPECT_TRUE(names.insert(job.name()).second);
    }
    list.set_page_token(page.next_page_token());
    ++num_pages;
  } while (!list.page_token().empty());
  EXPECT_THAT(names, SizeIs(80));
  EXPECT_EQ(num_pages, 2);
}

TEST_F(JobServiceTest, ADamagedResultIsToldAndThoseBehindItCanBeRead) {
  const std::string name = WaitForEnd(Submit(TokenJob(5)).name()).name();
  server_.reset();
  {
    auto database = SqliteConnection::Open(options_.state_directory + "/store.sqlite",
                                           /*read_only=*/false);
    ASSERT_TRUE(database.ok());
    ASSERT_TRUE((*database)->Execute("UPDATE results SET body = x'00' WHERE (key & 255) = 3").ok());
  }
  Start();
  const ResultsRead read = Stream(name);
  EXPECT_THAT(read.results, SizeIs(2));
  EXPECT_THAT(read.status, Refuses(StatusCode::DATA_LOSS, "RECORD_CORRUPT"));
  EXPECT_THAT(Stream(name, 3).results, SizeIs(2));
}

TEST_F(JobServiceTest, LimitsAreWhatTheOptionsSay) {
  options_.max_labels = 2;
  options_.max_custom_id_bytes = 5;
  options_.max_json_depth = 4;
  options_.max_prompt_bytes = 1024;
  options_.max_chunk_bytes = 256 << 10;
  options_.max_message_bytes = 1 << 20;
  Restart();
  grpc::ClientContext context;
  v1::ServerInfo info;
  ASSERT_TRUE(info_->GetServerInfo(&context, v1::GetServerInfoRequest(), &info).ok());
  EXPECT_EQ(info.limits().max_custom_id_bytes(), 5);
  EXPECT_EQ(info.limits().max_prompt_bytes(), 1024);
  EXPECT_EQ(info.limits().max_chunk_bytes(), 256 << 10);
  EXPECT_EQ(info.limits().max_message_bytes(), 1 << 20);
  v1::SubmitJobRequest request = TokenJob(1);
  for (const char* key : {"a", "b", "c"}) {
    (*request.mutable_spec()->mutable_labels())[key] = "x";
  }
  v1::Job job;
  const grpc::Status refused = Submit(request, job);
  EXPECT_THAT(refused, Refuses(StatusCode::INVALID_ARGUMENT, "FIELD_INVALID"));
  EXPECT_THAT(refused.error_message(), HasSubstr("3 labels, at most 2"));
  request = TokenJob(1);
  request.mutable_requests(0)->set_prompt(std::string(1 << 20, 'x'));
  EXPECT_EQ(Submit(request, job).error_code(), StatusCode::RESOURCE_EXHAUSTED) << "gRPC's own";
  request.mutable_requests(0)->set_prompt(std::string(950'000, 'x'));
  EXPECT_THAT(Submit(request, job).error_message(), HasSubstr("at most 917504"));
  EXPECT_THAT(Upload(UploadParts(std::string(300'000, 'x'), 300'000), job).error_message(),
              HasSubstr("has 300000 bytes, at most 262144"));
  const std::string rows = absl::StrCat(
      R"({"id":"row-12","prompt":"x"})", "\n", R"({"id":"deep","prompt":[[[[1]]]]})", "\n",
      R"({"id":"long","prompt":")", std::string(1025, 'x'), "\"}\n");
  const ResultsRead read = Stream(WaitForEnd(Upload(rows).name()).name());
  ASSERT_THAT(read.results, SizeIs(3));
  EXPECT_THAT(read.results[0].error().message(), HasSubstr("must have 1 to 5"));
  EXPECT_THAT(read.results[1].error().message(), HasSubstr("nests deeper than 4"));
  EXPECT_THAT(read.results[2].error().message(), HasSubstr("at most 1024"));
}

// Flow control of a few KiB, so that a reader that takes nothing soon stops the server.
std::unique_ptr<v1::JobService::Stub> NarrowStub(const std::string& address) {
  grpc::ChannelArguments arguments;
  arguments.SetInt("grpc.http2.lookahead_bytes", 1 << 14);
  arguments.SetInt("grpc.http2.bdp_probe", 0);
  arguments.SetInt("grpc.use_local_subchannel_pool", 1);
  return v1::JobService::NewStub(
      grpc::CreateCustomChannel(address, grpc::InsecureChannelCredentials(), arguments));
}

TEST_F(JobServiceTest, AReaderThatTakesNothingIsCutOffAndCanComeBack) {
  heartbeat_interval_us_ = 10'000;
  stalled_reader_us_ = 100'000;
  Restart();
  v1::StreamResultsRequest request;
  request.set_name(WaitForEnd(Submit(TokenJob(6'000)).name()).name());
  control_.HoldSweeps();
  v1::WaitJobRequest pause;  // of this job nothing comes
  pause.set_name(Submit(TokenJob(1)).name());
  // The daemon looks in its own time: wait longer until it has looked.
  grpc::Status status;
  std::set<int64_t> seen;
  for (int64_t wait_ms = 150; status.ok() && wait_ms < 10'000; wait_ms *= 2) {
    request.set_after_seq(0);
    seen.clear();
    const auto stub = NarrowStub(server_->addresses()[0]);
    grpc::ClientContext context;
    const auto reader = stub->StreamResults(&context, request);
    v1::ResultBatch batch;
    ASSERT_TRUE(reader->Read(&batch));
    pause.mutable_timeout()->set_seconds(wait_ms / 1000);
    pause.mutable_timeout()->set_nanos(static_cast<int32_t>(wait_ms % 1000) * 1'000'000);
    v1::Job job;
    EXPECT_TRUE(Wait(pause, job).ok());
    do {
      for (const v1::Result& result : batch.results()) {
        seen.insert(result.seq());
      }
      request.set_after_seq(batch.next_seq());
    } while (reader->Read(&batch));
    status = reader->Finish();
  }
  // ABORTED, or after twice the time the stream was reset.
  if (status.error_code() != StatusCode::CANCELLED) {
    EXPECT_THAT(status, Refuses(StatusCode::ABORTED, "READER_STALLED"));
  }
  EXPECT_LT(seen.size(), 6'000U);
  for (const v1::Result& result : Stream(request).results) {
    EXPECT_TRUE(seen.insert(result.seq()).second);
  }
  EXPECT_THAT(seen, SizeIs(6'000));
}

TEST_F(JobServiceTest, ChecksIdsAndFields) {
  const auto violations = [this](auto change) {
    v1::SubmitJobRequest request = TokenJob(1);
    change(request);
    v1::Job job;
    const grpc::Status status = Submit(request, job);
    EXPECT_EQ(status.error_code(), StatusCode::INVALID_ARGUMENT) << status.error_message();
    return DetailsOf(status).violations;
  };
  EXPECT_THAT(violations([](auto& request) { request.set_job_id("Bad Id"); }),
              ElementsAre("job_id"));
  EXPECT_THAT(violations([](auto& request) { request.set_request_id("7"); }),
              ElementsAre("request_id"));
  EXPECT_THAT(violations([](auto& request) { request.clear_requests(); }), ElementsAre("requests"));
  EXPECT_THAT(violations([](auto& request) {
                request.mutable_spec()->mutable_sampling()->set_top_p(1.5);
                request.mutable_spec()->set_max_attempts(-1);
              }),
              ElementsAre("spec.sampling.top_p", "spec.max_attempts"));
  EXPECT_THAT(violations([](auto& request) {
                request.mutable_spec()->set_priority(static_cast<v1::Priority>(77));
              }),
              ElementsAre("spec.priority"));
}

TEST_F(JobServiceTest, RefusesUnknownModels) {
  v1::SubmitJobRequest request = TokenJob(1);
  request.mutable_spec()->set_model("gpt-9");
  v1::Job job;
  EXPECT_THAT(Submit(request, job), Refuses(StatusCode::NOT_FOUND, "MODEL_NOT_FOUND"));
}

TEST_F(JobServiceTest, RecordsABadRowAndRunsTheOthers) {
  v1::SubmitJobRequest request = TokenJob(5);
  request.mutable_requests(2)->clear_input();
  const v1::Job job = Submit(request);
  EXPECT_EQ(job.counts().failed(), 1);
  const ResultsRead read = Stream(job.name());
  EXPECT_EQ(read.end.counts().succeeded(), 4);
  EXPECT_EQ(read.end.counts().failed(), 1);
  for (const v1::Result& result : read.results) {
    EXPECT_EQ(result.has_error(), result.custom_id() == "row-2");
  }
}

TEST_F(JobServiceTest, RefusesTheJobForABadRowWhenAsked) {
  v1::SubmitJobRequest request = TokenJob(5);
  request.mutable_spec()->set_on_invalid_line(v1::ON_INVALID_LINE_REJECT_JOB);
  request.mutable_requests(2)->clear_input();
  request.mutable_requests(4)->set_custom_id("row-1");
  v1::Job job;
  const grpc::Status status = Submit(request, job);
  EXPECT_THAT(status, Refuses(StatusCode::INVALID_ARGUMENT, "INPUT_MALFORMED"));
  EXPECT_THAT(DetailsOf(status).violations, ElementsAre("row 2", "row 4"));
  EXPECT_THAT(List({}).jobs(), IsEmpty());
}

TEST_F(JobServiceTest, KeepsDetailsSmallForManyBadRows) {
  v1::SubmitJobRequest request = TokenJob(3000);
  request.mutable_spec()->set_on_invalid_line(v1::ON_INVALID_LINE_REJECT_JOB);
  for (auto& row : *request.mutable_requests()) {
    row.mutable_tokens()->add_ids(-1);
  }
  v1::Job job;
  const grpc::Status status = Submit(request, job);
  EXPECT_THAT(status, Refuses(StatusCode::INVALID_ARGUMENT, "INPUT_MALFORMED"));
  EXPECT_THAT(DetailsOf(status).violations, SizeIs(20));
  EXPECT_THAT(DetailsOf(status).violations, Contains("input"));
  EXPECT_EQ(DetailsOf(status).metadata["violations"], "3000");
  EXPECT_THAT(status.error_message(), HasSubstr("(3000 violations)"));
}

TEST_F(JobServiceTest, ValidatesWithoutStoring) {
  v1::SubmitJobRequest request = TokenJob(4);
  request.mutable_requests(0)->clear_input();
  request.set_validate_only(true);
  const v1::Job job = Submit(request);
  EXPECT_EQ(job.counts().total(), 4);
  EXPECT_EQ(job.counts().failed(), 1);
  EXPECT_EQ(job.name(), "");
  EXPECT_THAT(List({}).jobs(), IsEmpty());
}

TEST_F(JobServiceTest, TellsUnknownJobsFromWrongNames) {
  v1::Job job;
  EXPECT_THAT(Get("jobs/nobody", job), Refuses(StatusCode::NOT_FOUND, "JOB_NOT_FOUND"));
  for (const char* name : {"", "nobody", "jobs/", "jobs/a/b", "jobs/A"}) {
    EXPECT_THAT(Get(name, job), Refuses(StatusCode::INVALID_ARGUMENT, "FIELD_INVALID")) << name;
  }
  EXPECT_THAT(Stream("jobs/nobody").status, Refuses(StatusCode::NOT_FOUND, "JOB_NOT_FOUND"));
  EXPECT_THAT(Cancel("jobs/nobody", job), Refuses(StatusCode::NOT_FOUND, "JOB_NOT_FOUND"));
  v1::WaitJobRequest wait;
  wait.set_name("jobs/nobody");
  EXPECT_THAT(Wait(wait, job), Refuses(StatusCode::NOT_FOUND, "JOB_NOT_FOUND"));
}

TEST_F(JobServiceTest, ListsNewestFirstPageByPage) {
  for (int i = 0; i < 5; ++i) {
    Submit(TokenJob(1, absl::StrCat("job-", i)));
  }
  v1::ListJobsRequest request;
  request.set_page_size(2);
  std::vector<std::string> names;
  std::vector<int> sizes;
  do {
    const v1::ListJobsResponse page = List(request);
    sizes.push_back(page.jobs_size());
    for (const v1::Job& job : page.jobs()) {
      names.push_back(job.name());
    }
    request.set_page_token(page.next_page_token());
  } while (!request.page_token().empty());
  EXPECT_THAT(sizes, ElementsAre(2, 2, 1));
  EXPECT_THAT(names,
              ElementsAre("jobs/job-4", "jobs/job-3", "jobs/job-2", "jobs/job-1", "jobs/job-0"));
}

TEST_F(JobServiceTest, RefusesForeignPageTokens) {
  Submit(TokenJob(1));
  Submit(TokenJob(1));
  v1::ListJobsRequest request;
  request.set_page_size(1);
  const std::string token = List(request).next_page_token();
  ASSERT_FALSE(token.empty());
  const auto refusal = [this](const v1::ListJobsRequest& wrong) {
    grpc::ClientContext context;
    v1::ListJobsResponse response;
    return jobs_->ListJobs(&context, wrong, &response);
  };
  request.set_page_token("AAAA" + token);
  EXPECT_THAT(refusal(request), Refuses(StatusCode::INVALID_ARGUMENT, "FIELD_INVALID"));
  request.set_page_token(token);
  request.set_state(v1::JOB_STATE_QUEUED);  // a token of the list of all jobs
  EXPECT_THAT(refusal(request), Refuses(StatusCode::INVALID_ARGUMENT, "FIELD_INVALID"));
  v1::ListJobsRequest negative;
  negative.set_page_size(-1);
  EXPECT_THAT(refusal(negative), Refuses(StatusCode::INVALID_ARGUMENT, "FIELD_INVALID"));
}

TEST_F(JobServiceTest, FiltersByState) {
  const v1::Job job = Submit(TokenJob(1));
  WaitForEnd(job.name());
  v1::ListJobsRequest request;
  request.set_state(v1::JOB_STATE_SUCCEEDED);
  EXPECT_THAT(List(request).jobs(), SizeIs(1));
  request.set_state(v1::JOB_STATE_RUNNING);
  EXPECT_THAT(List(request).jobs(), IsEmpty());
  request.set_state(v1::JOB_STATE_PAUSED);
  EXPECT_THAT(List(request).jobs(), IsEmpty());
}

TEST_F(JobServiceTest, WaitsUntilTheJobHasEnded) {
  const v1::Job job = WaitForEnd(Submit(TokenJob(10)).name());
  EXPECT_EQ(job.state(), v1::JOB_STATE_SUCCEEDED);
  EXPECT_EQ(job.last_seq(), 10);
  EXPECT_EQ(job.progress().fraction(), 1.0);
  EXPECT_GT(job.tokens().output(), 0);
  EXPECT_TRUE(job.has_end_time());
}

TEST_F(JobServiceTest, AnswersAWaitWhoseTimeIsUpWithTheStateNow) {
  control_.HoldSweeps();
  v1::WaitJobRequest request;
  request.set_name(Submit(TokenJob(1)).name());
  request.mutable_timeout()->set_nanos(20'000'000);
  v1::Job job;
  EXPECT_TRUE(Wait(request, job).ok());
  EXPECT_LT(job.state(), v1::JOB_STATE_SUCCEEDED);
  control_.ReleaseSweeps();
  EXPECT_EQ(WaitForEnd(request.name()).state(), v1::JOB_STATE_SUCCEEDED);
}

TEST_F(JobServiceTest, WaitsForRunningAndForResults) {
  control_.HoldSweeps();
  v1::WaitJobRequest request;
  request.set_name(Submit(TokenJob(6)).name());
  request.set_until(v1::WaitJobRequest::UNTIL_RUNNING);
  v1::Job job;
  ASSERT_TRUE(Wait(request, job).ok());
  EXPECT_EQ(job.state(), v1::JOB_STATE_RUNNING);
  control_.ReleaseSweeps();
  request.clear_until();
  request.set_results(3);
  ASSERT_TRUE(Wait(request, job).ok());
  EXPECT_GE(job.last_seq(), 3);
}

TEST_F(JobServiceTest, CancelsAJobAndAccountsForEveryRow) {
  control_.HoldSweeps();
  const v1::Job submitted = Submit(TokenJob(30));
  control_.WaitForHeldSweep();
  v1::Job job;
  ASSERT_TRUE(Cancel(submitted.name(), job).ok());
  EXPECT_GE(job.state(), v1::JOB_STATE_CANCELLING);
  EXPECT_TRUE(Cancel(submitted.name(), job).ok());
  control_.ReleaseSweeps();
  const ResultsRead read = Stream(submitted.name());
  EXPECT_EQ(read.end.state(), v1::JOB_STATE_CANCELLED);
  EXPECT_THAT(read.results, SizeIs(30));
  EXPECT_EQ(
      read.end.counts().succeeded() + read.end.counts().cancelled() + read.end.counts().failed(),
      30);
  EXPECT_TRUE(Cancel(submitted.name(), job).ok());
}

TEST_F(JobServiceTest, RefusesToCancelWhatHasEndedOrChanged) {
  const v1::Job done = WaitForEnd(Submit(TokenJob(1)).name());
  v1::Job job;
  EXPECT_THAT(Cancel(done.name(), job), Refuses(StatusCode::FAILED_PRECONDITION, "STATE_CONFLICT"));
  EXPECT_THAT(Cancel(done.name(), job, "stale"), Refuses(StatusCode::ABORTED, "ETAG_MISMATCH"));
}

TEST_F(JobServiceTest, ResumesAStreamAfterTheLastSeq) {
  const std::string name = WaitForEnd(Submit(TokenJob(10)).name()).name();
  const ResultsRead all = Stream(name);
  const ResultsRead rest = Stream(name, 6);
  ASSERT_THAT(all.results, SizeIs(10));
  ASSERT_THAT(rest.results, SizeIs(4));
  for (size_t i = 0; i < 4; ++i) {
    EXPECT_EQ(rest.results[i].SerializeAsString(), all.results[i + 6].SerializeAsString());
  }
  EXPECT_THAT(Stream(name, 10).results, IsEmpty());
  EXPECT_TRUE(Stream(name, 10).ended);
}

TEST_F(JobServiceTest, RefusesSequenceNumbersThatCannotBe) {
  const std::string name = WaitForEnd(Submit(TokenJob(2)).name()).name();
  EXPECT_THAT(Stream(name, 3).status, Refuses(StatusCode::OUT_OF_RANGE, "SEQ_AHEAD"));
  EXPECT_THAT(Stream(name, -1).status, Refuses(StatusCode::INVALID_ARGUMENT, "FIELD_INVALID"));
  v1::StreamResultsRequest unknown;
  unknown.set_name(name);
  unknown.set_order(static_cast<v1::ResultOrder>(9));
  EXPECT_THAT(Stream(unknown).status, Refuses(StatusCode::INVALID_ARGUMENT, "FIELD_INVALID"));
}

TEST_F(JobServiceTest, CutsBatchesByBytes) {
  v1::StreamResultsRequest request;
  request.set_name(WaitForEnd(Submit(TokenJob(50)).name()).name());
  request.set_max_batch_bytes(1);
  const ResultsRead read = Stream(request);
  EXPECT_THAT(read.results, SizeIs(50));
  EXPECT_GE(read.num_batches, 50);
}

TEST_F(JobServiceTest, EndsAStreamThatDoesNotFollowWithTheStateNow) {
  control_.HoldSweeps();
  const std::string name = Submit(TokenJob(3)).name();
  control_.WaitForHeldSweep();
  const ResultsRead read = Stream(name, 0, false);
  EXPECT_TRUE(read.status.ok());
  EXPECT_THAT(read.results, IsEmpty());
  ASSERT_TRUE(read.ended);
  EXPECT_EQ(read.end.state(), v1::JOB_STATE_RUNNING);
}

TEST_F(JobServiceTest, SurvivesReadersThatLeave) {
  control_.HoldSweeps();
  const std::string name = Submit(TokenJob(3)).name();
  for (int i = 0; i < 20; ++i) {
    grpc::ClientContext context;
    v1::StreamResultsRequest request;
    request.set_name(name);
    request.set_follow(true);
    const auto reader = jobs_->StreamResults(&context, request);
    reader->WaitForInitialMetadata();
    context.TryCancel();
    v1::ResultBatch batch;
    while (reader->Read(&batch)) {
    }
    EXPECT_EQ(reader->Finish().error_code(), StatusCode::CANCELLED);
  }
  control_.ReleaseSweeps();
  EXPECT_EQ(WaitForEnd(name).state(), v1::JOB_STATE_SUCCEEDED);
}

TEST_F(JobServiceTest, AJobTellsWhatItsSweepsWaitedForAlsoAfterARestart) {
  v1::Job job = Submit(TokenJob(3));
  EXPECT_FALSE(job.has_report());
  WaitForEnd(job.name());
  for (int start = 0; start < 2; ++start) {
    ASSERT_TRUE(Get(job.name(), job).ok());
    EXPECT_EQ(job.report().bottleneck(), "read 93 %");
    EXPECT_EQ(job.report().wall_us(), job.report().sweeps() * kFakeSweepUs);
    EXPECT_EQ(job.report().lanes_size(), 2);
    Restart();
  }
}

TEST_F(JobServiceTest, TellsWhatTheDaemonIs) {
  grpc::ClientContext context;
  v1::ServerInfo info;
  ASSERT_TRUE(info_->GetServerInfo(&context, v1::GetServerInfoRequest(), &info).ok());
  EXPECT_FALSE(info.version().empty() || info.instance_id().empty());
  EXPECT_EQ(info.storage().rfind("sqlite ", 0), 0U) << info.storage();
  EXPECT_THAT(info.api_versions(), ElementsAre("nightshift.v1"));
  EXPECT_EQ(info.limits().max_message_bytes(), 4 << 20);
  EXPECT_THAT(info.features(), ::testing::Contains(::testing::AnyOf("io_uring", "threads")));
  EXPECT_FALSE(info.draining());
  EXPECT_EQ(info.sparse_attention(), 1.0);
}

TEST_F(JobServiceTest, DumpsTheTimelineOnceASweepHasRun) {
  const auto dump = [&](v1::Timeline& timeline) {
    grpc::ClientContext context;
    return info_->DumpTimeline(&context, v1::DumpTimelineRequest(), &timeline);
  };
  v1::Timeline timeline;
  const grpc::Status refused = dump(timeline);
  EXPECT_THAT(refused, Refuses(StatusCode::FAILED_PRECONDITION, "NO_SWEEP"));
  EXPECT_NE(refused.error_message().find("submit a job"), std::string::npos);
  WaitForEnd(Submit(TokenJob(3)).name());
  ASSERT_TRUE(dump(timeline).ok());
  EXPECT_NE(timeline.chrome_trace_json().find("\"read weights\",\"ph\":\"X\""), std::string::npos);
  grpc::ClientContext context;
  v1::ServerInfo info;
  ASSERT_TRUE(info_->GetServerInfo(&context, v1::GetServerInfoRequest(), &info).ok());
  EXPECT_EQ(info.bottleneck(), "read 93 %");
}

class PolicyTest : public JobServiceTest {
 protected:
  void StartWithProfile() {
    options_.hardware = folder_.path() + "/box.json";
    ASSERT_TRUE(StoreHardwareProfile(options_.hardware, PlainBox()).ok());
    Restart();
  }
  grpc::Status Policy(v1::Policy& policy, const std::string& model = "",
                      const std::string& job = "") {
    v1::GetPolicyRequest request;
    request.set_model(model);
    request.set_job(job);
    grpc::ClientContext context;
    return jobs_->GetPolicy(&context, request, &policy);
  }
  v1::Policy Policy(const std::string& model = "", const std::string& job = "") {
    v1::Policy policy;
    const grpc::Status status = Policy(policy, model, job);
    EXPECT_TRUE(status.ok()) << status.error_message();
    return policy;
  }
  grpc::Status Explain(const v1::ExplainPolicyRequest& request,
                       v1::ExplainPolicyResponse& response) {
    grpc::ClientContext context;
    return jobs_->ExplainPolicy(&context, request, &response);
  }
};

TEST_F(PolicyTest, WithoutAProfileSaysWhatToRun) {
  options_.plans = false;
  Restart();
  EXPECT_NE(Policy().reason().find("--plan off"), std::string::npos);
  EXPECT_FALSE(Policy().planned());
  EXPECT_FALSE(Policy().has_hardware());
}

TEST_F(PolicyTest, ShowsThePlanOfTheLoadedModel) {
  StartWithProfile();
  EXPECT_NE(Policy().reason().find("no model is loaded"), std::string::npos);
  EXPECT_NE(Policy("llama").reason().find("is not loaded"), std::string::npos);
  control_.HoldSweeps();
  const v1::Job job = Submit(TokenJob(20));
  control_.WaitForHeldSweep();
  const v1::Policy policy = Policy();
  EXPECT_TRUE(policy.planned()) << policy.reason();
  EXPECT_EQ(policy.model(), "llama");
  EXPECT_EQ(policy.hardware().name(), "box");
  EXPECT_EQ(policy.requests(), 20);
  EXPECT_GT(policy.block_requests(), 0);
  EXPECT_GT(policy.tokens_per_s(), 0.0);
  EXPECT_FALSE(policy.binding().empty());
  ASSERT_EQ(policy.shares_size(), 3);
  for (const v1::PolicyShares& shares : policy.shares()) {
    EXPECT_NEAR(shares.device() + shares.host() + shares.disk(), 1.0, 1e-9) << shares.what();
  }
  ASSERT_GE(policy.tiers_size(), 1);
  EXPECT_LE(policy.tiers(0).bytes(), policy.tiers(0).capacity_bytes());
  EXPECT_EQ(Policy("llama").SerializeAsString(), policy.SerializeAsString());
  EXPECT_EQ(Policy("", job.name()).SerializeAsString(), policy.SerializeAsString());
  v1::Job running;
  ASSERT_TRUE(Get(job.name(), running).ok());
  EXPECT_TRUE(running.progress().has_eta());
  EXPECT_LE(running.progress().eta_low().seconds(), running.progress().eta_high().seconds());
  control_.ReleaseSweeps();
  const v1::Job ended = WaitForEnd(job.name());
  EXPECT_GT(ended.report().prediction().predicted_wall_us(), 0);
  EXPECT_NE(Policy("", job.name()).reason().find("has ended"), std::string::npos);
  grpc::ClientContext context;
  v1::ServerInfo info;
  ASSERT_TRUE(info_->GetServerInfo(&context, v1::GetServerInfoRequest(), &info).ok());
  EXPECT_EQ(info.planning().hardware(), "box");
  EXPECT_EQ(info.planning().plans(), 1);
}

TEST_F(PolicyTest, RefusesWhatIsNotThere) {
  v1::Policy policy;
  EXPECT_THAT(Policy(policy, "nobody"), Refuses(StatusCode::NOT_FOUND, "MODEL_NOT_FOUND"));
  EXPECT_THAT(Policy(policy, "", "jobs/nobody"), Refuses(StatusCode::NOT_FOUND, "JOB_NOT_FOUND"));
  EXPECT_THAT(Policy(policy, "", "nobody"), Refuses(StatusCode::INVALID_ARGUMENT, "FIELD_INVALID"));
  EXPECT_THAT(Policy(policy, "llama", "jobs/a"),
              Refuses(StatusCode::INVALID_ARGUMENT, "FIELD_INVALID"));
}

TEST_F(PolicyTest, ExplainsAWorkloadWithoutRunningIt) {
  StartWithProfile();
  v1::ExplainPolicyRequest request;
  request.set_requests(1000);
  request.set_prompt_tokens(30);
  request.set_output_tokens(30);
  v1::ExplainPolicyResponse explained;
  ASSERT_TRUE(Explain(request, explained).ok());
  EXPECT_TRUE(explained.policy().planned()) << explained.policy().reason();
  EXPECT_EQ(explained.policy().requests(), 1000);
  EXPECT_GT(explained.alternatives_size(), 0);
  for (const v1::PolicyAlternative& alternative : explained.alternatives()) {
    EXPECT_FALSE(alternative.why().empty()) << alternative.what();
  }
  EXPECT_EQ(control_.num_sweeps(), 0);
  EXPECT_TRUE(control_.created().empty());
  request.set_prompt_tokens(1'000'000);  // above the context
  EXPECT_THAT(Explain(request, explained),
              Refuses(StatusCode::INVALID_ARGUMENT, "FIELD_OUT_OF_RANGE"));
  request.set_requests(-1);
  EXPECT_THAT(Explain(request, explained),
              Refuses(StatusCode::INVALID_ARGUMENT, "FIELD_OUT_OF_RANGE"));
}

TEST_F(PolicyTest, AWorkloadThatFitsNowhereIsAnswerAndNoError) {
  options_.memory_budget_bytes = 1000;
  StartWithProfile();
  v1::ExplainPolicyRequest request;
  request.set_requests(10);
  request.set_prompt_tokens(10);
  v1::ExplainPolicyResponse explained;
  const grpc::Status status = Explain(request, explained);
  ASSERT_TRUE(status.ok()) << status.error_message();
  EXPECT_FALSE(explained.policy().planned());
  EXPECT_NE(explained.policy().reason().find("lacks"), std::string::npos);
}

}  // namespace
}  // namespace nightshift
