// What the daemon does to a result on its way out and to a row on its way in, beside the least that
// could be done: a bare gRPC stream of the same messages, bare SQLite inserts of the same rows.
// Server and client are in this process; state is in the temporary folder, which must be a disk.
// One JSON line a case; the median of 5 rounds, in turns.
#include <algorithm>
#include <cstdio>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <grpcpp/grpcpp.h>

#include "absl/strings/str_cat.h"

#include "kernels/base/check.h"
#include "kernels/base/checksum.h"
#include "kernels/base/clock.h"
#include "server/security/digest.h"
#include "server/security/identifiers.h"
#include "server/server.h"
#include "server/store/sqlite_job_store.h"
#include "server/store/sqlite_schema.h"
#include "server/store/sqlite_statement.h"
#include "tests/support/fake_engine.h"
#include "tests/support/temporary_folder.h"
#include "tests/support/tiny_packs.h"

#include "nightshift/v1/jobs.grpc.pb.h"

namespace nightshift {
namespace {

constexpr int kRounds = 5;
constexpr int64_t kResults = 400'000;
constexpr int64_t kRows = 200'000;
constexpr int64_t kBatchBytes = 64 << 10;  // of results in a message, the daemon's default
constexpr int64_t kInsertsPerCommit = 1000;
constexpr size_t kChunkBytes = 256 << 10;

void Must(const absl::Status& status) {
  if (!status.ok()) {
    CheckFailed(__FILE__, __LINE__, "bench", status.ToString());
  }
}

// A result that takes 100 bytes on the wire.
v1::Result MakeResult(int64_t seq) {
  v1::Result result;
  result.set_seq(seq);
  result.set_index(seq - 1);
  result.set_custom_id(absl::StrCat("row-", seq));
  v1::Completion& completion = *result.mutable_completion();
  completion.mutable_usage()->set_prompt_tokens(12);
  completion.mutable_usage()->set_output_tokens(9);
  std::string& text = *completion.mutable_text();
  while (result.ByteSizeLong() < 100) {
    text.push_back('x');
  }
  return result;
}

// The store of a daemon that has run a job of kResults rows, named "done".
void FillStore(const std::string& state_directory) {
  auto directory = StateDirectory::Open(state_directory);
  Must(directory.status());
  auto store = SqliteJobStore::Open({.path = (*directory)->database_path()});
  Must(store.status());
  JobRecord job;
  job.id = "done";
  job.model = "llama";
  constexpr int64_t kRowsPerWrite = 4096;
  for (int64_t first = 0; first < kResults; first += kRowsPerWrite) {
    std::vector<NewRow> rows;
    for (int64_t i = first; i < std::min(first + kRowsPerWrite, kResults); ++i) {
      v1::Result result = MakeResult(i + 1);
      result.clear_seq();
      rows.push_back({.index = i, .error_body = result.SerializeAsString()});
    }
    Must((*store)->Begin());
    if (first == 0) {
      Must((*store)->InsertJob(job));
    }
    Must((*store)->InsertRows("done", rows));
    if (first + kRowsPerWrite >= kResults) {
      Must((*store)->FinishReceiving("done", RealClock().WallMicros()));
    }
    Must((*store)->Commit());
    Must((*store)->Checkpoint());
  }
}

// The messages that a stream of all results consists of.
std::vector<v1::ResultBatch> MakeBatches() {
  std::vector<v1::ResultBatch> batches(1);
  int64_t bytes = 0;
  for (int64_t seq = 1; seq <= kResults; ++seq) {
    if (bytes >= kBatchBytes) {
      batches.emplace_back();
      bytes = 0;
    }
    *batches.back().add_results() = MakeResult(seq);
    batches.back().set_next_seq(seq);
    bytes += static_cast<int64_t>(batches.back().results().rbegin()->ByteSizeLong());
  }
  return batches;
}

// Writes the batches, one after the other.
class BareStream : public grpc::ServerWriteReactor<v1::ResultBatch> {
 public:
  explicit BareStream(const std::vector<v1::ResultBatch>& batches) : batches_(batches) { Next(); }
  void OnWriteDone(bool ok) override {
    if (ok) {
      Next();
    } else {
      Finish(grpc::Status::CANCELLED);
    }
  }
  void OnDone() override { delete this; }

 private:
  void Next() {
    if (next_ == batches_.size()) {
      Finish(grpc::Status::OK);
    } else {
      StartWrite(&batches_[next_++]);
    }
  }

  const std::vector<v1::ResultBatch>& batches_;
  size_t next_ = 0;
};

class BareService : public v1::JobService::CallbackService {
 public:
  explicit BareService(std::vector<v1::ResultBatch> batches) : batches_(std::move(batches)) {}
  grpc::ServerWriteReactor<v1::ResultBatch>* StreamResults(
      grpc::CallbackServerContext* /*context*/,
      const v1::StreamResultsRequest* /*request*/) override {
    return std::make_unique<BareStream>(batches_).release();  // its own, until OnDone
  }

 private:
  const std::vector<v1::ResultBatch> batches_;
};

std::unique_ptr<v1::JobService::Stub> Connect(const std::string& address) {
  return v1::JobService::NewStub(
      grpc::CreateChannel(address, grpc::InsecureChannelCredentials()));
}

void ReadAll(v1::JobService::Stub& stub) {
  v1::StreamResultsRequest request;
  request.set_name("jobs/done");
  grpc::ClientContext context;
  const auto reader = stub.StreamResults(&context, request);
  v1::ResultBatch batch;
  int64_t results = 0;
  while (reader->Read(&batch)) {
    results += batch.results_size();
  }
  const grpc::Status status = reader->Finish();
  CHECK(status.ok());
  CHECK_EQ(results, kResults);
}

std::string MakeInput() {
  std::string input;
  for (int64_t i = 0; i < kRows; ++i) {
    absl::StrAppend(&input, R"({"id": "row-)", i, R"(", "prompt": "document )", i,
                    R"( of a nightly job"})", "\n");
  }
  return input;
}

std::vector<v1::SubmitJobStreamRequest> MakeUpload(const std::string& input, int round) {
  std::vector<v1::SubmitJobStreamRequest> parts(1);
  v1::SubmitJobStreamRequest::Header& header = *parts[0].mutable_header();
  header.set_request_id(MakeUuid(round + 1));
  header.set_format(v1::INPUT_FORMAT_JSONL);
  header.mutable_spec()->mutable_not_before()->set_seconds(4'000'000'000);
  Sha256 digest;
  digest.Update(input);
  for (size_t offset = 0; offset < input.size(); offset += kChunkBytes) {
    v1::SubmitJobStreamRequest::Chunk& chunk = *parts.emplace_back().mutable_chunk();
    chunk.set_offset(static_cast<int64_t>(offset));
    chunk.set_data(input.substr(offset, kChunkBytes));
    chunk.set_crc32c(Crc32c(std::as_bytes(std::span(chunk.data()))));
  }
  v1::SubmitJobStreamRequest::Finish& finish = *parts.emplace_back().mutable_finish();
  finish.set_total_bytes(static_cast<int64_t>(input.size()));
  finish.set_sha256(digest.Finish());
  return parts;
}

v1::Job Submit(v1::JobService::Stub& stub, const std::vector<v1::SubmitJobStreamRequest>& parts) {
  grpc::ClientContext context;
  v1::Job job;
  const auto writer = stub.SubmitJobStream(&context, &job);
  for (const v1::SubmitJobStreamRequest& part : parts) {
    CHECK(writer->Write(part));
  }
  writer->WritesDone();
  CHECK(writer->Finish().ok());
  CHECK_EQ(job.counts().pending(), kRows);
  return job;
}

// So that the check of a submitted job's rows does not run beside what is measured next.
void Pause(v1::JobService::Stub& stub, const std::string& name) {
  v1::PauseJobRequest request;
  request.set_name(name);
  grpc::ClientContext context;
  v1::Job job;
  CHECK(stub.PauseJob(&context, request, &job).ok());
}

void InsertBare(const std::string& path) {
  { std::fclose(std::fopen(path.c_str(), "wb")); }
  auto connection = SqliteConnection::Open(path, /*read_only=*/false);
  Must(connection.status());
  Must(ConfigureWriter(**connection));
  Must(Migrate(**connection));
  for (int64_t first = 0; first < kRows; first += kInsertsPerCommit) {
    Must((*connection)->Execute("BEGIN IMMEDIATE"));
    {
      auto insert = (*connection)
                        ->Prepare("INSERT INTO rows(job, idx, offset, length, line, state, seq)"
                                  " VALUES(?, ?, ?, ?, ?, ?, ?)");
      Must(insert.status());
      for (int64_t i = first; i < first + kInsertsPerCommit; ++i) {
        insert->Bind(int64_t{1}).Bind(i).Bind(i * 60).Bind(int64_t{60}).Bind(i + 1);
        Must(insert->Bind(int64_t{0}).Bind(int64_t{0}).Run());
      }
    }
    Must((*connection)->Execute("COMMIT"));
  }
}

double SecondsOf(const std::function<void()>& function) {
  const RealClock clock;
  const int64_t start_us = clock.MonotonicMicros();
  function();
  return static_cast<double>(clock.MonotonicMicros() - start_us) * 1e-6;
}

double Median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

void Report(const char* name, int64_t count, const char* unit, const char* reference,
            const std::vector<double>& seconds, const std::vector<double>& reference_seconds) {
  const double rate = static_cast<double>(count) / Median(seconds);
  const double ceiling = static_cast<double>(count) / Median(reference_seconds);
  std::printf("{\"bench\": \"server\", \"case\": \"%s\", \"value\": %.0f, \"unit\": \"%s\", "
              "\"reference\": \"%s\", \"reference_value\": %.0f, \"ratio\": %.3f}\n",
              name, rate, unit, reference, ceiling, rate / ceiling);
  std::fflush(stdout);
}

void CompareStreams(v1::JobService::Stub& daemon, const std::string& folder) {
  BareService service(MakeBatches());
  grpc::ServerBuilder builder;
  const std::string address = "unix:" + folder + "/bare";
  builder.AddListeningPort(address, grpc::InsecureServerCredentials());
  builder.RegisterService(&service);
  const std::unique_ptr<grpc::Server> server = builder.BuildAndStart();
  CHECK(server != nullptr);
  const auto bare = Connect(address);
  std::vector<double> ours;
  std::vector<double> reference;
  for (int round = 0; round < kRounds; ++round) {
    ours.push_back(SecondsOf([&] { ReadAll(daemon); }));
    reference.push_back(SecondsOf([&] { ReadAll(*bare); }));
  }
  server->Shutdown();
  Report("results of 100 bytes streamed", kResults, "results/s",
         "bare gRPC stream of the same messages", ours, reference);
}

void CompareAcceptance(v1::JobService::Stub& daemon, const std::string& folder) {
  const std::string input = MakeInput();
  std::vector<double> ours;
  std::vector<double> reference;
  for (int round = 0; round < kRounds; ++round) {
    const std::vector<v1::SubmitJobStreamRequest> parts = MakeUpload(input, round);
    v1::Job job;
    ours.push_back(SecondsOf([&] { job = Submit(daemon, parts); }));
    Pause(daemon, job.name());
    const std::string path = absl::StrCat(folder, "/bare-", round, ".sqlite");
    reference.push_back(SecondsOf([&] { InsertBare(path); }));
  }
  Report("rows accepted", kRows, "rows/s", "bare SQLite inserts of the same rows, 1000 a commit",
         ours, reference);
}

void Main() {
  const TemporaryFolder folder;
  Options options;
  options.state_directory = folder.path() + "/state";
  options.listen = {"unix:" + folder.path() + "/socket"};
  options.models = {TinyPack("llama")};
  options.memory_budget_bytes = 64 << 20;
  options.plans = false;
  FillStore(options.state_directory);
  ServerParts parts;
  parts.engine_factory = [](const EngineOptions& engine) {
    return FakeEngine::Create(engine, FakeEngineOptions(), nullptr);
  };
  parts.on_fatal = Must;
  auto server = Server::Start(options, std::move(parts));
  Must(server.status());
  const auto daemon = Connect((*server)->addresses()[0]);
  CompareStreams(*daemon, folder.path());
  CompareAcceptance(*daemon, folder.path());
}

}  // namespace
}  // namespace nightshift

int main() {
  nightshift::Main();
}
