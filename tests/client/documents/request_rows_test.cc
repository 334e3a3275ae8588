// Documents to rows, and results of parts to documents again.
#include "client/documents/request_rows.h"

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "client/documents/merge_levels.h"
#include "client/rpc_error.h"
#include "tests/support/status_matchers.h"

#include "google/rpc/error_details.pb.h"
#include "google/rpc/status.pb.h"

namespace nightshift {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

Document TextDocument(const std::string& id, const std::string& text) {
  Document document;
  document.id = id;
  document.fields = {{"text", text}, {"file", id, false}, {"id", id, false}};
  return document;
}

class RequestRowsTest : public ::testing::Test {
 protected:
  // Parts of so many bytes.
  RequestRows Rows(v1::TooLong too_long, int64_t part_bytes) {
    RequestRowOptions options;
    options.spec.set_model("m");
    options.too_long = too_long;
    options.overlap_tokens = 3;
    return RequestRows(template_, options, [this, part_bytes](const v1::CutDocumentRequest& request) {
      asked_.push_back(request);
      v1::CutDocumentResponse response;
      response.set_prompt_tokens(100);
      for (int64_t at = 0; at < request.document().length(); at += part_bytes) {
        v1::DocumentPart& part = *response.add_parts();
        part.set_offset(at);
        part.set_length(std::min(part_bytes, request.document().length() - at));
        part.set_prompt_tokens(40);
        if (request.too_long() == v1::TOO_LONG_TRUNCATE) {
          break;
        }
      }
      return absl::StatusOr<v1::CutDocumentResponse>(response);
    });
  }

  PromptTemplate template_ = *PromptTemplate::Parse("t", "Sum up \"{{text}}\", please");
  std::vector<v1::CutDocumentRequest> asked_;
};

TEST_F(RequestRowsTest, ADocumentIsARowAndNobodyIsAskedWhereNothingIsCut) {
  RequestRows rows = Rows(v1::TOO_LONG_ERROR, 4);
  EXPECT_EQ(*rows.RowsOf(TextDocument("a.txt", "x\n<|im_end|>")),
            R"({"id":"a.txt","messages":[{"role":"user","content":"Sum up \"x\n<|im_end|>\", )"
            R"(please"}]})"
            "\n");
  EXPECT_TRUE(asked_.empty());
}

TEST_F(RequestRowsTest, ADocumentOfWhichNothingCanBeMadeIsARowWithItsError) {
  RequestRows rows = Rows(v1::TOO_LONG_ERROR, 4);
  Document broken = TextDocument("b.txt", "");
  broken.error = {"document_unreadable", "open b.txt: is a folder"};
  EXPECT_EQ(*rows.RowsOf(broken), R"({"id":"b.txt","error":{"code":"document_unreadable",)"
                                  R"("message":"open b.txt: is a folder"}})"
                                  "\n");
  EXPECT_THAT(*rows.RowsOf(TextDocument("c.txt", " \n")), HasSubstr("document_empty"));
  EXPECT_EQ(rows.counts().failed, 2);
  EXPECT_EQ(rows.counts().requests, 0);
}

TEST_F(RequestRowsTest, FieldsThatAreMissingRefuseAFileButOnlyTheirObjectOfJson) {
  RequestRows rows = Rows(v1::TOO_LONG_ERROR, 4);
  Document document;
  document.id = "t.jsonl:3";
  document.fields = {{"body", "x"}};
  EXPECT_THAT(rows.RowsOf(document),
              StatusIs(absl::StatusCode::kInvalidArgument, "has no field text; there are body"));
  document.has_fixed_fields = false;
  EXPECT_THAT(*rows.RowsOf(document), HasSubstr("document_missing_field"));
}

TEST_F(RequestRowsTest, ATruncatedDocumentKeepsItsInstructionAndSaysSo) {
  RequestRows rows = Rows(v1::TOO_LONG_TRUNCATE, 4);
  EXPECT_EQ(*rows.RowsOf(TextDocument("a", "abcdefghij")),
            R"({"id":"a","messages":[{"role":"user","content":"Sum up \"abcd\", please"}],)"
            R"("metadata":{"truncated":{"prompt_tokens":100,"kept_prompt_tokens":40}}})"
            "\n");
  ASSERT_EQ(asked_.size(), 1U);
  EXPECT_EQ(asked_[0].document().offset(), 8);
  EXPECT_EQ(asked_[0].document().length(), 10);
  EXPECT_EQ(asked_[0].spec().model(), "m");
  EXPECT_EQ(asked_[0].request().chat().messages(0).content(), "Sum up \"abcdefghij\", please");
  EXPECT_EQ(rows.counts().truncated, 1);
}

TEST_F(RequestRowsTest, ASplitDocumentIsARowAPart) {
  RequestRows rows = Rows(v1::TOO_LONG_SPLIT, 4);
  const std::string lines = *rows.RowsOf(TextDocument("a", "abcdef"));
  EXPECT_EQ(lines,
            R"({"id":"a#1/2","messages":[{"role":"user","content":"Sum up \"abcd\", please"}],)"
            R"("metadata":{"part":{"document":"a","number":1,"of":2}}})"
            "\n"
            R"({"id":"a#2/2","messages":[{"role":"user","content":"Sum up \"ef\", please"}],)"
            R"("metadata":{"part":{"document":"a","number":2,"of":2}}})"
            "\n");
  EXPECT_EQ(asked_[0].overlap_tokens(), 3);
  EXPECT_THAT(*rows.RowsOf(TextDocument("b", "abc")), HasSubstr(R"("id":"b","messages")"));
  EXPECT_EQ(rows.counts().split, 1);
  EXPECT_EQ(rows.counts().requests, 3);
}

TEST_F(RequestRowsTest, ARefusalOfTheDocumentIsItsErrorAndAnyOtherEndsTheCommand) {
  const auto rows_with = [&](const absl::Status& refusal) {
    RequestRowOptions options;
    options.too_long = v1::TOO_LONG_SPLIT;
    return RequestRows(template_, options,
                       [refusal](const v1::CutDocumentRequest&) { return refusal; });
  };
  google::rpc::ErrorInfo info;
  info.set_reason("PROMPT_TOO_LONG");
  (*info.mutable_metadata())["code"] = "context_length_exceeded";
  google::rpc::Status wire;
  wire.set_code(static_cast<int>(absl::StatusCode::kInvalidArgument));
  wire.add_details()->PackFrom(info);
  const absl::Status refused = FromRpcStatus(
      "measure a document",
      grpc::Status(grpc::StatusCode::INVALID_ARGUMENT, "no room", wire.SerializeAsString()));
  EXPECT_THAT(*rows_with(refused).RowsOf(TextDocument("a", "text")),
              HasSubstr(R"("error":{"code":"context_length_exceeded","message":"a: measure a )"
                        R"(document: no room"})"));
  EXPECT_THAT(rows_with(absl::NotFoundError("no such model")).RowsOf(TextDocument("a", "text")),
              StatusIs(absl::StatusCode::kNotFound, "no such model"));
}

TEST_F(RequestRowsTest, WhatIsCutMustBeThereOnce) {
  template_ = *PromptTemplate::Parse("t", "{{text}} {{text}}");
  RequestRows rows = Rows(v1::TOO_LONG_SPLIT, 4);
  EXPECT_THAT(rows.RowsOf(TextDocument("a", "abc")),
              StatusIs(absl::StatusCode::kInvalidArgument, "names the longest field 2 times"));
}

TEST_F(RequestRowsTest, MergingThatDoesNotGetShorterIsAnError) {
  RequestRows rows = Rows(v1::TOO_LONG_SPLIT, 4);
  Document outputs = TextDocument("a", "abcdefgh");
  outputs.first_parts = 5;
  outputs.last_parts = 3;
  EXPECT_THAT(*rows.RowsOf(outputs), HasSubstr(R"("metadata":{"merged_parts":5,"part":{"document")"));
  outputs.last_parts = 2;
  EXPECT_THAT(*rows.RowsOf(outputs), HasSubstr("document_not_merged"));
}

v1::Result TextResult(const std::string& id, const std::string& text, const std::string& metadata) {
  v1::Result result;
  result.set_custom_id(id);
  result.set_metadata(metadata);
  result.mutable_completion()->set_text(text);
  return result;
}

TEST(MergeLevelsTest, GivesOneResultADocumentInTheOrderOfTheDocuments) {
  MergeLevels levels;
  ASSERT_OK(levels.Begin());
  ASSERT_OK(levels.Append(TextResult("a", "whole", "")));
  for (int i = 1; i <= 3; ++i) {
    const std::string number = std::to_string(i);
    ASSERT_OK(levels.Append(
        TextResult("b#" + number + "/3", " out " + number + "\n",
                   R"({"part":{"document":"b","number":)" + number + R"(,"of":3}})")));
  }
  v1::Result failed = TextResult("c#1/2", "", R"({"part":{"document":"c","number":1,"of":2}})");
  failed.mutable_error()->set_code(3);
  failed.mutable_error()->set_message("wrong");
  ASSERT_OK(levels.Append(failed));
  ASSERT_OK(levels.Append(
      TextResult("c#2/2", "rest", R"({"part":{"document":"c","number":2,"of":2}})")));
  std::vector<std::string> merged;
  ASSERT_OK(levels.ForEachSplit([&](const Document& document) {
    merged.push_back(document.id + ": " +
                     (document.error ? document.error->message : document.fields[0].value));
    EXPECT_EQ(document.last_parts, document.first_parts);
    return absl::OkStatus();
  }));
  EXPECT_THAT(merged, ElementsAre("b: out 1\n\nout 2\n\nout 3",
                                  HasSubstr("c: c: part 1 of 2 failed with ")));
  // b in two levels, c in one.
  ASSERT_OK(levels.Begin());
  for (int i = 1; i <= 2; ++i) {
    ASSERT_OK(levels.Append(
        TextResult("b#" + std::to_string(i) + "/2", "o",
                   R"({"merged_parts":3,"part":{"document":"b","number":)" + std::to_string(i) +
                       R"(,"of":2}})")));
  }
  ASSERT_OK(levels.Append(TextResult("c", "C", "")));
  ASSERT_OK(levels.ForEachSplit([&](const Document& document) {
    EXPECT_EQ(document.first_parts, 3);
    EXPECT_EQ(document.last_parts, 2);
    return absl::OkStatus();
  }));
  ASSERT_OK(levels.Begin());
  ASSERT_OK(levels.Append(TextResult("b", "B", "")));
  std::vector<std::string> finals;
  ASSERT_OK(levels.ForEachFinal([&](const v1::Result& result) {
    finals.push_back(std::to_string(result.index()) + " " + result.custom_id() + " " +
                     result.completion().text());
    return absl::OkStatus();
  }));
  EXPECT_THAT(finals, ElementsAre("0 a whole", "1 b B", "2 c C"));
}

}  // namespace
}  // namespace nightshift
