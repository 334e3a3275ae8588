#include "engine/process/message_socket.h"

#include <optional>
#include <string>
#include <thread>
#include <vector>

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/status_matchers.h"

namespace nightshift {
namespace {

class MessageSocketTest : public ::testing::Test {
 protected:
  void SetUp() override {
    auto ends = MessageSocket::Pair();
    ASSERT_OK(ends);
    EXPECT_EQ(fcntl(ends->first.get(), F_GETFD), FD_CLOEXEC);
    EXPECT_EQ(fcntl(ends->second.get(), F_GETFD), FD_CLOEXEC);
    raw_ = ends->second.get();
    left_.emplace(std::move(ends->first));
    right_.emplace(std::move(ends->second));
  }
  void SendRaw(absl::string_view bytes) { ASSERT_OK(WriteAll(raw_, bytes, "a socket")); }

  std::optional<MessageSocket> left_;
  std::optional<MessageSocket> right_;
  int raw_ = -1;  // of right_
};

TEST_F(MessageSocketTest, MessagesOfEverySizeArriveInOrder) {
  const std::vector<size_t> sizes = {0, 1, 15, 16, 17, 65535, 65536, 65537, 20'000'000};
  std::thread sender([&] {
    for (const size_t size : sizes) {
      EXPECT_OK(right_->Send(std::string(size, static_cast<char>('a' + size % 7))));
    }
  });
  for (const size_t size : sizes) {
    EXPECT_EQ(left_->Receive().value(), std::string(size, static_cast<char>('a' + size % 7)));
  }
  sender.join();
}

TEST_F(MessageSocketTest, AnEndThatIsClosedIsToldApartFromOneThatIsSilent) {
  EXPECT_FALSE(left_->IsClosed());
  EXPECT_OK(right_->Send("last words"));
  right_->Close();
  EXPECT_FALSE(left_->IsClosed());
  EXPECT_EQ(left_->Receive().value(), "last words");
  EXPECT_TRUE(left_->IsClosed());
  EXPECT_THAT(left_->Receive(), StatusIs(absl::StatusCode::kUnavailable, "closed"));
  EXPECT_THAT(left_->Send("x"), StatusIs(absl::StatusCode::kUnavailable, "closed"));
}

TEST_F(MessageSocketTest, AMessageThatIsCutOffIsAnErrorWithNumbers) {
  SendRaw(absl::string_view("nsengin1\x64\0\0\0\0\0\0\0half", 20));
  right_->Close();
  EXPECT_THAT(left_->Receive(), StatusIs(absl::StatusCode::kDataLoss, "after 4 of 100 bytes"));
}

TEST_F(MessageSocketTest, AHeaderThatIsCutOffIsAnError) {
  SendRaw("nseng");
  right_->Close();
  EXPECT_THAT(left_->Receive(), StatusIs(absl::StatusCode::kDataLoss, "after 5 of 16 bytes"));
}

TEST_F(MessageSocketTest, WhatIsNoMessageOrOfAnotherVersionIsRefused) {
  SendRaw("GET / HTTP/1.1\r\n\r\n");
  EXPECT_THAT(left_->Receive(), StatusIs(absl::StatusCode::kDataLoss, "begin like a message"));
}

TEST_F(MessageSocketTest, ALengthOverTheBoundIsRefused) {
  SendRaw(absl::string_view("nsengin1\xff\xff\xff\xff\xff\xff\xff\xff", 16));
  EXPECT_THAT(left_->Receive(), StatusIs(absl::StatusCode::kResourceExhausted, "at most"));
}

}  // namespace
}  // namespace nightshift
