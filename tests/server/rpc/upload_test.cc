#include <filesystem>
#include <functional>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/server/rpc/service_world.h"

namespace nightshift {
namespace {

using ::grpc::StatusCode;
using ::testing::AnyOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

using Parts = std::vector<v1::SubmitJobStreamRequest>;

std::string Rows(int count) {
  std::string input;
  for (int i = 0; i < count; ++i) {
    input += absl::StrCat("{\"id\": \"r", i, "\", \"prompt\": [20, 21, ", 30 + i % 200, "]}\n");
  }
  return input;
}

class UploadTest : public ServiceWorld {
 protected:
  grpc::Status UploadBent(const std::function<void(Parts&)>& bend,
                          const std::string& input = Rows(10)) {
    Parts parts = UploadParts(input);
    bend(parts);
    v1::Job job;
    const grpc::Status status = Upload(parts, job);
    EXPECT_THAT(List({}).jobs(), IsEmpty());
    return status;
  }
  grpc::Status UploadStatusOf(const std::string& request_id, v1::UploadStatus& status) {
    v1::GetUploadStatusRequest request;
    request.set_request_id(request_id);
    grpc::ClientContext context;
    status.Clear();
    return jobs_->GetUploadStatus(&context, request, &status);
  }
  size_t NumUploadFiles() const {
    size_t count = 0;
    for ([[maybe_unused]] const auto& file :
         std::filesystem::directory_iterator(options_.state_directory + "/uploads")) {
      ++count;
    }
    return count;
  }
};

TEST_F(UploadTest, RunsAnInputThatComesInChunks) {
  const v1::Job job = Upload(Rows(300));
  EXPECT_EQ(job.counts().total(), 300);
  const ResultsRead read = Stream(job.name());
  EXPECT_THAT(read.results, SizeIs(300));
  EXPECT_EQ(read.end.counts().succeeded(), 300);
  EXPECT_EQ(NumUploadFiles(), 0);
}

TEST_F(UploadTest, TellsLinesInResults) {
  const v1::Job job = Upload("\xEF\xBB\xBF\n\n{\"prompt\": [20]}\r\n\n{\"prompt\": [21]}");
  const ResultsRead read = Stream(job.name());
  ASSERT_THAT(read.results, SizeIs(2));
  EXPECT_EQ(read.results[0].line() + read.results[1].line(), 3 + 5);
}

TEST_F(UploadTest, AnswersEachBadLineAndRunsTheOthers) {
  const v1::Job job = Upload(
      "{\"id\": \"good\", \"prompt\": [20]}\n"
      "not json\n"
      "{\"id\": \"bad-utf8\", \"prompt\": \"\xFF\"}\n"
      "{\"id\": \"tools\", \"prompt\": [20], \"tools\": [1]}\n"
      "{\"id\": \"good\", \"prompt\": [21]}\n"
      "{\"id\": \"model\", \"prompt\": [20], \"model\": \"other\"}\n"
      "{\"id\": \"good-2\", \"prompt\": [20], \"model\": \"llama\"}\n");
  EXPECT_EQ(job.counts().total(), 7);
  EXPECT_EQ(job.counts().failed(), 5);
  const ResultsRead read = Stream(job.name());
  EXPECT_EQ(read.end.counts().succeeded(), 2);
  std::map<int64_t, std::string> errors;  // by line
  for (const v1::Result& result : read.results) {
    EXPECT_EQ(result.form(), v1::REQUEST_FORM_PLAIN);
    if (result.has_error()) {
      errors[result.line()] = result.error().message();
    }
  }
  EXPECT_THAT(errors[2], HasSubstr("not one JSON value at byte"));
  EXPECT_THAT(errors[3], HasSubstr("invalid UTF-8 at byte"));
  EXPECT_THAT(errors[4], HasSubstr("tools"));
  EXPECT_THAT(errors[5], HasSubstr("id of line 5 was used before in line 1"));
  EXPECT_THAT(errors[6], HasSubstr("the job's model is llama"));
}

TEST_F(UploadTest, RefusesAChunkAtAnotherOffset) {
  const grpc::Status status =
      UploadBent([](Parts& parts) { parts[2].mutable_chunk()->set_offset(1); });
  EXPECT_THAT(status, Refuses(StatusCode::FAILED_PRECONDITION, "UPLOAD_OFFSET_MISMATCH"));
  EXPECT_EQ(DetailsOf(status).metadata["committedSize"], "64");
}

TEST_F(UploadTest, RefusesAChunkWithAnotherChecksum) {
  EXPECT_THAT(UploadBent([](Parts& parts) { parts[1].mutable_chunk()->set_crc32c(1); }),
              Refuses(StatusCode::INVALID_ARGUMENT, "CHECKSUM_MISMATCH"));
}

TEST_F(UploadTest, RefusesAnInputWithAnotherDigestOrSize) {
  EXPECT_THAT(UploadBent([](Parts& parts) {
                parts.back().mutable_finish()->set_sha256(std::string(32, 'x'));
              }),
              Refuses(StatusCode::INVALID_ARGUMENT, "CHECKSUM_MISMATCH"));
  EXPECT_THAT(UploadBent([](Parts& parts) { parts.back().mutable_finish()->set_total_bytes(1); }),
              Refuses(StatusCode::INVALID_ARGUMENT, "CHECKSUM_MISMATCH"));
}

TEST_F(UploadTest, AnUploadWithoutFinishIsKeptAndGoesOnAlsoAfterARestart) {
  Parts parts = UploadParts(Rows(10));
  const std::string id = parts[0].header().request_id();
  v1::UploadStatus status;
  EXPECT_THAT(UploadStatusOf(id, status), Refuses(StatusCode::NOT_FOUND, "UPLOAD_NOT_FOUND"));
  v1::Job job;
  const grpc::Status incomplete = Upload({parts[0], parts[1], parts[2]}, job);
  EXPECT_THAT(incomplete, Refuses(StatusCode::ABORTED, "UPLOAD_INCOMPLETE"));
  EXPECT_EQ(DetailsOf(incomplete).metadata["committedSize"], "128");
  EXPECT_THAT(List({}).jobs(), IsEmpty());
  for (int start = 0; start < 2; ++start) {
    ASSERT_TRUE(UploadStatusOf(id, status).ok());
    EXPECT_EQ(status.committed_bytes(), 128);
    EXPECT_FALSE(status.complete());
    EXPECT_GT(status.expire_time().seconds(), 0);
    Restart();
  }
  parts[0].mutable_header()->set_resume_offset(128);
  parts.erase(parts.begin() + 1, parts.begin() + 3);
  ASSERT_TRUE(Upload(parts, job).ok());
  EXPECT_EQ(job.counts().total(), 10);
  EXPECT_EQ(Stream(job.name()).end.counts().succeeded(), 10);
  EXPECT_EQ(NumUploadFiles(), 0);
  ASSERT_TRUE(UploadStatusOf(id, status).ok());
  EXPECT_TRUE(status.complete());
  EXPECT_EQ(status.committed_bytes(), static_cast<int64_t>(Rows(10).size()));
}

TEST_F(UploadTest, ABrokenConnectionKeepsWhatCameAndABadChunkWhatCameBefore) {
  Parts parts = UploadParts(Rows(10));
  const std::string id = parts[0].header().request_id();
  {
    grpc::ClientContext context;
    v1::Job job;
    const auto writer = jobs_->SubmitJobStream(&context, &job);
    ASSERT_TRUE(writer->Write(parts[0]) && writer->Write(parts[1]));
    context.TryCancel();
    EXPECT_EQ(writer->Finish().error_code(), StatusCode::CANCELLED);
  }
  server_.reset();  // ends what the call left to do
  Start();
  v1::UploadStatus status;
  const bool kept = UploadStatusOf(id, status).ok();
  const int64_t offset = kept ? status.committed_bytes() : 0;
  EXPECT_THAT(offset, ::testing::AnyOf(0, 64)) << "the header may not have come";
  parts[0].mutable_header()->set_resume_offset(offset);
  Parts bad = {parts[0]};
  bad.insert(bad.end(), parts.begin() + 1 + offset / 64, parts.end());
  bad[2].mutable_chunk()->set_crc32c(1);
  v1::Job job;
  EXPECT_THAT(Upload(bad, job), Refuses(StatusCode::INVALID_ARGUMENT, "CHECKSUM_MISMATCH"));
  ASSERT_TRUE(UploadStatusOf(id, status).ok());
  EXPECT_EQ(status.committed_bytes(), offset + 64);
}

TEST_F(UploadTest, AResumptionMustBeginWhereTheUploadIsAndZeroBeginsAnew) {
  Parts parts = UploadParts(Rows(10));
  v1::Job job;
  ASSERT_FALSE(Upload({parts[0], parts[1], parts[2]}, job).ok());
  Parts wrong = parts;
  wrong[0].mutable_header()->set_resume_offset(64);
  const grpc::Status refused = Upload(wrong, job);
  EXPECT_THAT(refused, Refuses(StatusCode::FAILED_PRECONDITION, "UPLOAD_OFFSET_MISMATCH"));
  EXPECT_EQ(DetailsOf(refused).metadata["committedSize"], "128");
  wrong[0].mutable_header()->set_resume_offset(-1);
  EXPECT_THAT(Upload(wrong, job), Refuses(StatusCode::INVALID_ARGUMENT, "FIELD_INVALID"));
  ASSERT_TRUE(Upload(parts, job).ok());
  EXPECT_EQ(job.counts().total(), 10);
}

TEST_F(UploadTest, TwoCallsDoNotSendOneUpload) {
  const Parts parts = UploadParts(Rows(10));
  grpc::ClientContext context;
  v1::Job job;
  const auto writer = jobs_->SubmitJobStream(&context, &job);
  ASSERT_TRUE(writer->Write(parts[0]) && writer->Write(parts[1]));
  v1::UploadStatus status;
  while (!UploadStatusOf(parts[0].header().request_id(), status).ok()) {
  }
  v1::Job other;
  const grpc::Status refused = Upload(parts, other);
  EXPECT_THAT(refused, Refuses(StatusCode::ABORTED, "REQUEST_IN_PROGRESS"));
  EXPECT_TRUE(DetailsOf(refused).has_retry);
  for (size_t i = 2; i < parts.size(); ++i) {
    ASSERT_TRUE(writer->Write(parts[i]));
  }
  writer->WritesDone();
  EXPECT_TRUE(writer->Finish().ok());
}

TEST_F(UploadTest, ARefusedInputIsNotKept) {
  Parts parts = UploadParts("\n");
  v1::Job job;
  EXPECT_THAT(Upload(parts, job), Refuses(StatusCode::INVALID_ARGUMENT, "INPUT_MALFORMED"));
  v1::UploadStatus status;
  EXPECT_THAT(UploadStatusOf(parts[0].header().request_id(), status),
              Refuses(StatusCode::NOT_FOUND, "UPLOAD_NOT_FOUND"));
  EXPECT_THAT(UploadStatusOf("7", status), Refuses(StatusCode::INVALID_ARGUMENT, "FIELD_INVALID"));
}

TEST_F(UploadTest, NoJobIsAcceptedBelowTheReserveOfTheDisk) {
  options_.disk_reserve_bytes = int64_t{1} << 60;
  Restart();
  v1::Job job;
  const grpc::Status refused = Upload(UploadParts(Rows(2)), job);
  EXPECT_THAT(refused, Refuses(StatusCode::RESOURCE_EXHAUSTED, "DISK_RESERVE"));
  EXPECT_TRUE(DetailsOf(refused).has_retry);
  EXPECT_THAT(Submit(TokenJob(1), job), Refuses(StatusCode::RESOURCE_EXHAUSTED, "DISK_RESERVE"));
}

TEST_F(UploadTest, WantsPartsInOrder) {
  EXPECT_THAT(UploadBent([](Parts& parts) { parts.erase(parts.begin()); }),
              Refuses(StatusCode::INVALID_ARGUMENT, "FIELD_INVALID"));
  EXPECT_THAT(UploadBent([](Parts& parts) { parts.insert(parts.begin(), parts[0]); }),
              Refuses(StatusCode::INVALID_ARGUMENT, "FIELD_INVALID"));
  EXPECT_THAT(UploadBent([](Parts& parts) { parts[1].clear_part(); }),
              Refuses(StatusCode::INVALID_ARGUMENT, "FIELD_INVALID"));
}

TEST_F(UploadTest, ChecksTheHeader) {
  EXPECT_THAT(UploadBent([](Parts& parts) { parts[0].mutable_header()->clear_request_id(); }),
              Refuses(StatusCode::INVALID_ARGUMENT, "FIELD_INVALID"));
  EXPECT_THAT(UploadBent([](Parts& parts) { parts[0].mutable_header()->clear_format(); }),
              Refuses(StatusCode::INVALID_ARGUMENT, "FIELD_INVALID"));
  EXPECT_THAT(UploadBent([](Parts& parts) { parts[0].mutable_header()->set_resume_offset(5); }),
              Refuses(StatusCode::FAILED_PRECONDITION, "UPLOAD_OFFSET_MISMATCH"));
  EXPECT_THAT(UploadBent([](Parts& parts) {
                parts[0].mutable_header()->mutable_spec()->set_model("gpt-9");
              }),
              Refuses(StatusCode::NOT_FOUND, "MODEL_NOT_FOUND"));
}

TEST_F(UploadTest, RefusesInputsWithoutRowsOrInAnotherEncoding) {
  for (const std::string& input :
       {std::string("\n \n\r\n"), std::string("\xFF\xFE{\0}\0", 6), std::string()}) {
    EXPECT_THAT(UploadBent([](Parts&) {}, input),
                Refuses(StatusCode::INVALID_ARGUMENT, "INPUT_MALFORMED"));
  }
}

TEST_F(UploadTest, RefusesTheFileForABadLineWhenAsked) {
  const grpc::Status status = UploadBent(
      [](Parts& parts) {
        parts[0].mutable_header()->mutable_spec()->set_on_invalid_line(
            v1::ON_INVALID_LINE_REJECT_JOB);
      },
      "{\"prompt\": [1]}\n\noops\n{\"id\": \"a\"}\n");
  EXPECT_THAT(status, Refuses(StatusCode::INVALID_ARGUMENT, "INPUT_MALFORMED"));
  EXPECT_THAT(DetailsOf(status).violations, ElementsAre("line 3", "line 4"));
}

// A line that no job may run, with what is said of it.
struct BadLine {
  std::string line;
  const char* code;
  const char* param;
};

std::vector<BadLine> BadLines() {
  const auto row = [](const std::string& id, const std::string& method, const std::string& url,
                      const std::string& body) {
    return absl::StrCat("{", id, "\"method\":\"", method, "\",\"url\":\"", url, "\",\"body\":{", body,
                        "}}");
  };
  const std::string id = "\"custom_id\":\"b\",";
  const std::string url = "/v1/completions";
  const std::string body = "\"prompt\":[20]";
  return {
      {"{\"custom_id\":\"b\"", "invalid_json_line", ""},
      {row(id, "POST", url, "\"prompt\":\"\xFF\""), "invalid_json_line", ""},
      {row("", "POST", url, body), "invalid_custom_id", "custom_id"},
      {row("\"custom_id\":\"\",", "POST", url, body), "invalid_custom_id", "custom_id"},
      {row("\"custom_id\":7,", "POST", url, body), "invalid_custom_id", "custom_id"},
      {row("\"custom_id\":\"first\",", "POST", url, body), "duplicate_custom_id", "custom_id"},
      {row(id, "GET", url, body), "invalid_value", "method"},
      {row(id, "POST", "/v1/embeddings", body), "url_mismatch", "url"},
      {row(id, "POST", url, body + ",\"model\":\"another\""), "model_mismatch", "model"},
      {row(id, "POST", url, body + ",\"stream\":true"), "unsupported_parameter", "stream"},
      {row(id, "POST", url, body + ",\"tools\":[1]"), "unsupported_parameter", "tools"},
      {row(id, "POST", url, body + ",\"max_tokens\":1e300"), "invalid_value", "max_tokens"},
      {row(id, "POST", url, body + ",\"temperature\":1e400"), "invalid_json_line", ""},
  };
}

// A file of which the second line is bad, behind a byte order mark, with CRLF and a blank line.
std::string FileWith(const BadLine& bad) {
  const auto good = [](const std::string& id) {
    return absl::StrCat("{\"custom_id\":\"", id,
                        "\",\"method\":\"POST\",\"url\":\"/v1/completions\",\"body\":{\"prompt\":[20],"
                        "\"nobody_knows\":1,\"max_tokens\":9,\"max_tokens\":2}}");
  };
  return absl::StrCat("\xEF\xBB\xBF", good("first"), "\r\n", bad.line, "\r\n\r\n", good("last"));
}

TEST_F(UploadTest, InTheLenientModeABadLineFailsAloneWithCodeParamAndLine) {
  for (const BadLine& bad : BadLines()) {
    SCOPED_TRACE(bad.line);
    Parts parts = UploadParts(FileWith(bad));
    parts[0].mutable_header()->set_request_id(MakeUuid(1));
    v1::Job job;
    ASSERT_TRUE(Upload(parts, job).ok());
    EXPECT_EQ(job.counts().total(), 3);
    EXPECT_EQ(job.counts().failed(), 1);
    const ResultsRead read = Stream(job.name());
    EXPECT_EQ(read.end.counts().succeeded(), 2);
    ASSERT_THAT(read.results, SizeIs(3));
    const v1::Result& result = read.results[0];
    EXPECT_EQ(result.line(), 2);
    // Also what names neither of OpenAI's endpoints is answered by a line of OpenAI's.
    EXPECT_THAT(result.form(),
                AnyOf(v1::REQUEST_FORM_OPENAI_COMPLETION, v1::REQUEST_FORM_OPENAI_CHAT));
    google::rpc::ErrorInfo info;
    ASSERT_TRUE(result.error().details_size() > 0 && result.error().details(0).UnpackTo(&info));
    EXPECT_EQ(info.metadata().at("code"), bad.code);
    EXPECT_EQ(info.metadata().count("param") == 0 ? "" : info.metadata().at("param"), bad.param);
  }
}

TEST_F(UploadTest, InTheStrictModeABadLineRefusesTheFileByItsNumber) {
  for (const BadLine& bad : BadLines()) {
    SCOPED_TRACE(bad.line);
    const grpc::Status status = UploadBent(
        [](Parts& parts) {
          parts[0].mutable_header()->mutable_spec()->set_on_invalid_line(
              v1::ON_INVALID_LINE_REJECT_JOB);
        },
        FileWith(bad));
    EXPECT_THAT(status, Refuses(StatusCode::INVALID_ARGUMENT, "INPUT_MALFORMED"));
    EXPECT_THAT(DetailsOf(status).violations, ElementsAre("line 2"));
  }
  EXPECT_THAT(List({}).jobs(), IsEmpty());
}

TEST_F(UploadTest, AFileWhosePromptsAreTooLongIsRefusedForThat) {
  const std::string long_row =
      absl::StrCat("{\"prompt\": \"", std::string((8 << 20) + 1, 'x'), "\"}\n");
  const std::string good_row = "{\"prompt\": [20]}\n";
  const auto status_of = [&](const std::string& input) {
    Parts parts = UploadParts(input, 1 << 20);
    parts[0].mutable_header()->mutable_spec()->set_on_invalid_line(v1::ON_INVALID_LINE_REJECT_JOB);
    v1::Job job;
    return Upload(parts, job);
  };
  const grpc::Status status = status_of(good_row + long_row);
  EXPECT_THAT(status, Refuses(StatusCode::INVALID_ARGUMENT, "PROMPT_TOO_LONG"));
  EXPECT_THAT(DetailsOf(status).violations, ElementsAre("line 2"));
  EXPECT_THAT(status_of(long_row + "{\n"),
              Refuses(StatusCode::INVALID_ARGUMENT, "INPUT_MALFORMED"));
}

TEST_F(UploadTest, GivesTheStoredJobForTheSameUploadAgain) {
  const Parts parts = UploadParts(Rows(5));
  v1::Job first;
  v1::Job again;
  ASSERT_TRUE(Upload(parts, first).ok());
  ASSERT_TRUE(Upload(parts, again).ok());
  EXPECT_EQ(first.name(), again.name());
  EXPECT_THAT(List({}).jobs(), SizeIs(1));
  Parts other = UploadParts(Rows(6));
  other[0].mutable_header()->set_request_id(parts[0].header().request_id());
  EXPECT_THAT(Upload(other, again), Refuses(StatusCode::ALREADY_EXISTS, "REQUEST_ID_REUSED"));
}

TEST_F(UploadTest, AcceptsInputsOfProtoMessages) {
  std::string input;
  const v1::SubmitJobRequest rows = TokenJob(3);
  for (const v1::InferenceRequest& row : rows.requests()) {
    input.push_back(static_cast<char>(row.ByteSizeLong()));
    input += row.SerializeAsString();
  }
  Parts parts = UploadParts(input);
  parts[0].mutable_header()->set_format(v1::INPUT_FORMAT_PROTO);
  v1::Job job;
  ASSERT_TRUE(Upload(parts, job).ok());
  EXPECT_EQ(Stream(job.name()).end.counts().succeeded(), 3);
}

TEST_F(UploadTest, RunsJobsOfManyRowsWithinTheirOrder) {
  const v1::Job job = Upload(Rows(10'000));  // more than one store write
  EXPECT_EQ(job.counts().total(), 10'000);
  const ResultsRead read = Stream(job.name());
  EXPECT_THAT(read.results, SizeIs(10'000));
  EXPECT_EQ(read.end.counts().succeeded(), 10'000);
}

}  // namespace
}  // namespace nightshift
