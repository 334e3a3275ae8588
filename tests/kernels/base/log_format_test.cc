#include "kernels/base/log_format.h"

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace nightshift {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

std::string Json(const std::string& text, LogLevel level = LogLevel::kInfo) {
  return FormatLine({.wall_us = 1'767'225'599'123'456, .level = level, .text = text},
                    LogFormat::kJson);
}
const char kHead[] = R"({"time":"2025-12-31T23:59:59.123Z","level":"info",)";

TEST(LogFormatTest, JsonHasTheEventAndItsMembers) {
  EXPECT_EQ(Json("job_accepted job=night rows=12 share=-0.5 done=true version=1.2.3 empty="),
            std::string(kHead) +
                R"("event":"job_accepted","job":"night","rows":12,"share":-0.5,"done":true,)"
                R"("version":"1.2.3","empty":""})");
  EXPECT_EQ(Json("stopped"), std::string(kHead) + R"("event":"stopped"})");
  EXPECT_THAT(Json("x", LogLevel::kWarning), HasSubstr(R"("level":"warning")"));
  EXPECT_THAT(Json("x", LogLevel::kError), HasSubstr(R"("level":"error")"));
}

TEST(LogFormatTest, JsonKeepsWordsAndQuotesOfAValueTogether) {
  EXPECT_EQ(Json(R"(sweep_failed error="open "a b": no such file" requests=3)"),
            std::string(kHead) +
                R"("event":"sweep_failed","error":"open \"a b\": no such file","requests":3})");
  EXPECT_EQ(Json(R"(model_waits reason="")"),
            std::string(kHead) + R"("event":"model_waits","reason":""})");
}

TEST(LogFormatTest, JsonOfAnotherFormIsAMessage) {
  EXPECT_EQ(Json("starting listen=unix:/a (default) x"),
            std::string(kHead) +
                R"("event":"starting","message":"starting listen=unix:/a (default) x"})");
  EXPECT_EQ(Json("check failed: a == b"),
            std::string(kHead) + R"("event":"check","message":"check failed: a == b"})");
  EXPECT_EQ(Json("a=\"never closed"), std::string(kHead) + R"("message":"a=\"never closed"})");
  EXPECT_EQ(Json(""), std::string(kHead) + R"("message":""})");
}

TEST(LogFormatTest, JsonIsOneLineOfUtf8WhateverComes) {
  const std::string line = Json("event name=a\nb\x1b\xff\xc3\xa9");
  EXPECT_THAT(line, Not(HasSubstr("\n")));
  EXPECT_THAT(line, HasSubstr(R"("name":"a\nb\u001b)"));
  EXPECT_THAT(line, HasSubstr("\xef\xbf\xbd\xc3\xa9"));
}

TEST(LogFormatTest, AnEventThatRepeatsIsLeftOutAndCounted) {
  LogLimiter limiter;
  int64_t now_us = 1'000'000;
  int64_t written = 0;
  for (int i = 0; i < 1000; ++i) {
    written += limiter.Admit("storm", now_us).has_value() ? 1 : 0;
  }
  EXPECT_EQ(written, 200);
  EXPECT_EQ(limiter.Admit("another", now_us), 0) << "each event by itself";
  now_us += 100'000;
  EXPECT_EQ(limiter.Admit("storm", now_us), 800);
  EXPECT_EQ(limiter.Admit("storm", now_us), 0);
  EXPECT_EQ(limiter.Admit("storm", now_us), std::nullopt);
}

TEST(LogFormatTest, TheProcessWritesAsItIsTold) {
  SetLogFormat(LogFormat::kJson);
  testing::internal::CaptureStderr();
  LOG(ERROR) << "disk_gone path=/a";
  const std::string written = testing::internal::GetCapturedStderr();
  SetLogFormat(LogFormat::kText);
  EXPECT_THAT(written, HasSubstr(R"("level":"error","event":"disk_gone","path":"/a"})"));
  ASSERT_FALSE(RecentProblems().empty());
  EXPECT_EQ(RecentProblems().back().text, "disk_gone path=/a");
}

TEST(LogFormatTest, KeepsTheLastProblemsOnly) {
  testing::internal::CaptureStderr();
  for (int i = 0; i < 30; ++i) {
    LOG(WARNING) << "problem number=" << i;
    LOG(INFO) << "no_problem number=" << i;
  }
  testing::internal::GetCapturedStderr();
  const std::vector<LoggedLine> kept = RecentProblems();
  ASSERT_EQ(kept.size(), 20U);
  EXPECT_EQ(kept.front().text, "problem number=10");
  EXPECT_EQ(kept.back().text, "problem number=29");
}

}  // namespace
}  // namespace nightshift
