#include "server/http/http_server.h"

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include <arpa/inet.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <httplib.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include "absl/strings/numbers.h"

#include "kernels/base/file_descriptor.h"
#include "tests/support/status_matchers.h"

namespace nightshift {
namespace {

using ::testing::HasSubstr;

class HttpServerTest : public ::testing::Test {
 protected:
  HttpServerTest() {
    auto server = HttpServer::Start(
        "127.0.0.1:0", {{"/here", [] {
                           return HttpResponse{
                               .status = 203, .content_type = "text/x-test", .body = "hello"};
                         }}});
    EXPECT_OK(server);
    server_ = *std::move(server);
    client_ = std::make_unique<httplib::Client>(server_->url());
  }

  std::unique_ptr<HttpServer> server_;
  std::unique_ptr<httplib::Client> client_;
};

TEST_F(HttpServerTest, AnswersWithWhatTheRouteSays) {
  const httplib::Result result = client_->Get("/here");
  ASSERT_TRUE(result);
  EXPECT_EQ(result->status, 203);
  EXPECT_EQ(result->body, "hello");
  EXPECT_EQ(result->get_header_value("Content-Type"), "text/x-test");
  EXPECT_EQ(result->get_header_value("X-Content-Type-Options"), "nosniff");
  EXPECT_THAT(result->get_header_value("Content-Security-Policy"), HasSubstr("default-src 'none'"));
}

TEST_F(HttpServerTest, NamesThePagesThatThereAre) {
  const httplib::Result result = client_->Get("/there");
  ASSERT_TRUE(result);
  EXPECT_EQ(result->status, 404);
  EXPECT_THAT(result->body, HasSubstr("/here"));
}

TEST_F(HttpServerTest, ServesGetOnly) {
  const httplib::Result result = client_->Post("/here", "body", "text/plain");
  ASSERT_TRUE(result);
  EXPECT_EQ(result->status, 405);
  EXPECT_EQ(result->get_header_value("Allow"), "GET, HEAD");
}

TEST_F(HttpServerTest, RefusesNamesThatAreNotLoopbacks) {
  for (const char* host :
       {"evil.example", "evil.example:80", "127.0.0.1.evil.example", "", "[::2]"}) {
    const httplib::Result result = client_->Get("/here", {{"Host", host}});
    ASSERT_TRUE(result) << host;
    EXPECT_EQ(result->status, 421) << host;
  }
  for (const char* host : {"localhost", "localhost:1", "127.0.0.1", "[::1]:9", "[::1]"}) {
    const httplib::Result result = client_->Get("/here", {{"Host", host}});
    ASSERT_TRUE(result) << host;
    EXPECT_EQ(result->status, 203) << host;
  }
}

TEST_F(HttpServerTest, AnswersBesideACrowdThatSaysNothing) {
  int port = 0;
  ASSERT_TRUE(absl::SimpleAtoi(server_->url().substr(server_->url().rfind(':') + 1), &port));
  sockaddr_in address = {};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<uint16_t>(port));
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  std::vector<FileDescriptor> silent;
  for (int i = 0; i < 100; ++i) {
    silent.emplace_back(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    ASSERT_EQ(::connect(silent.back().get(),
                        static_cast<const sockaddr*>(static_cast<const void*>(&address)),
                        sizeof(address)),
              0);
  }
  client_->set_read_timeout(60);
  const httplib::Result result = client_->Get("/here");
  ASSERT_TRUE(result);
  EXPECT_EQ(result->status, 203);
}

TEST_F(HttpServerTest, APortHasOneServer) {
  const std::string address = server_->url().substr(std::string("http://").size());
  EXPECT_THAT(HttpServer::Start(address, {}),
              StatusIs(absl::StatusCode::kFailedPrecondition, "--http-listen"));
}

TEST(HttpAddressTest, IsLoopbacks) {
  for (const char* good : {"127.0.0.1:9464", "[::1]:0", "localhost:65535"}) {
    EXPECT_OK(CheckHttpAddress(good)) << good;
  }
  for (const char* bad : {"0.0.0.0:80", "127.0.0.1", "127.0.0.1:", "127.0.0.1:65536", ":80", "",
                          "192.168.0.1:80", "localhost.evil:1", "unix:/tmp/x", "127.0.0.1:-1"}) {
    EXPECT_THAT(CheckHttpAddress(bad), StatusIs(absl::StatusCode::kInvalidArgument,
                                                std::string("--http-listen is ") + bad))
        << bad;
  }
}

}  // namespace
}  // namespace nightshift
