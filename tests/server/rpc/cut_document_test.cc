// CutDocument over the wire, with a tokenizer that has tokens for spaces and for the bytes of
// "\u00e4" alone.
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "absl/strings/str_cat.h"

#include "tests/server/rpc/service_world.h"

namespace nightshift {
namespace {

using ::grpc::StatusCode;
using ::testing::HasSubstr;

class CutDocumentTest : public ServiceWorld {
 protected:
  CutDocumentTest() {
    options_.models = {TinyPackWithTokenizer("llama")};
    Restart();
    v1::ListModelsResponse models;
    grpc::ClientContext context;
    EXPECT_TRUE(info_->ListModels(&context, {}, &models).ok());
    context_tokens_ = models.models(0).context_tokens();
  }

  // The prompt "  DOCUMENT  ".
  static v1::CutDocumentRequest Request(const std::string& document) {
    v1::CutDocumentRequest request;
    request.mutable_spec()->mutable_sampling()->set_max_output_tokens(4);
    request.mutable_request()->set_prompt(absl::StrCat("  ", document, "  "));
    request.mutable_document()->set_offset(2);
    request.mutable_document()->set_length(static_cast<int64_t>(document.size()));
    return request;
  }
  grpc::Status Cut(const v1::CutDocumentRequest& request) {
    grpc::ClientContext context;
    response_.Clear();
    return jobs_->CutDocument(&context, request, &response_);
  }

  int64_t context_tokens_ = 0;
  v1::CutDocumentResponse response_;
};

TEST_F(CutDocumentTest, ADocumentThatFitsIsOnePart) {
  ASSERT_TRUE(Cut(Request("\u00e4 \u00e4")).ok());
  ASSERT_EQ(response_.parts_size(), 1);
  EXPECT_EQ(response_.parts(0).offset(), 0);
  EXPECT_EQ(response_.parts(0).length(), 5);
  EXPECT_EQ(response_.parts(0).prompt_tokens(), 9);
  EXPECT_EQ(response_.prompt_tokens(), 9);
  EXPECT_EQ(response_.max_prompt_tokens(), context_tokens_ - 4);
}

TEST_F(CutDocumentTest, WhatDoesNotFitIsRefusedTruncatedOrSplit) {
  std::string document;
  for (int i = 0; i < 40; ++i) {
    document += "\u00e4\u00e4 ";
  }
  v1::CutDocumentRequest request = Request(document);
  request.set_max_prompt_tokens(30);
  const grpc::Status refused = Cut(request);
  EXPECT_THAT(refused, Refuses(StatusCode::INVALID_ARGUMENT, "PROMPT_TOO_LONG"));
  EXPECT_THAT(refused.error_message(), HasSubstr("tokens, at most 30"));
  EXPECT_EQ(DetailsOf(refused).metadata["code"], "context_length_exceeded");

  request.set_too_long(v1::TOO_LONG_TRUNCATE);
  ASSERT_TRUE(Cut(request).ok());
  ASSERT_EQ(response_.parts_size(), 1);
  EXPECT_EQ(response_.prompt_tokens(), 204);
  // One token more would be half a character.
  EXPECT_EQ(response_.parts(0).prompt_tokens(), 29);
  EXPECT_EQ(response_.parts(0).length(), 25);

  request.set_too_long(v1::TOO_LONG_SPLIT);
  ASSERT_TRUE(Cut(request).ok());
  EXPECT_GT(response_.parts_size(), 3);
  int64_t end = 0;
  for (const v1::DocumentPart& part : response_.parts()) {
    EXPECT_LE(part.prompt_tokens(), 30);
    EXPECT_EQ(part.offset(), end);
    end = part.offset() + part.length();
  }
  EXPECT_EQ(end, static_cast<int64_t>(document.size()));
}

TEST_F(CutDocumentTest, RequestsThatMeanNothingAreRefusedByField) {
  const auto refuses = [&](const std::string& field, auto bend) {
    v1::CutDocumentRequest request = Request("aa \xc3\xa4");
    bend(request);
    const grpc::Status status = Cut(request);
    EXPECT_EQ(status.error_code(), StatusCode::INVALID_ARGUMENT) << field;
    EXPECT_THAT(status.error_message(), HasSubstr(field));
  };
  refuses("document", [](auto& request) { request.mutable_document()->set_length(8); });
  refuses("document", [](auto& request) { request.mutable_document()->set_offset(-1); });
  refuses("document", [](auto& request) { request.mutable_document()->set_length(4); });
  refuses("document.message", [](auto& request) { request.mutable_document()->set_message(1); });
  refuses("max_prompt_tokens", [](auto& request) { request.set_max_prompt_tokens(-1); });
  refuses("overlap_tokens", [](auto& request) { request.set_overlap_tokens(-1); });
  refuses("max_output_tokens", [&](auto& request) {
    request.mutable_spec()->mutable_sampling()->set_max_output_tokens(context_tokens_);
  });
  refuses("prompt or a chat", [](auto& request) {
    request.mutable_request()->mutable_tokens()->add_ids(3);
  });
  refuses("request has neither", [](auto& request) { request.mutable_request()->Clear(); });
}

TEST_F(CutDocumentTest, AModelThatCannotCutIsNamed) {
  v1::CutDocumentRequest request = Request("aa");
  request.mutable_spec()->set_model("another");
  EXPECT_THAT(Cut(request), Refuses(StatusCode::NOT_FOUND, "MODEL_NOT_FOUND"));
  request.mutable_spec()->set_model("llama");
  v1::ChatMessage& message = *request.mutable_request()->mutable_chat()->add_messages();
  message.set_role("user");
  message.set_content("  aa  ");
  EXPECT_THAT(Cut(request), Refuses(StatusCode::FAILED_PRECONDITION, "MODEL_UNAVAILABLE"));
}

}  // namespace
}  // namespace nightshift
