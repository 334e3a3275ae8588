#include "server/rpc/listener_probe.h"

#include <cstring>
#include <string>

#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/un.h>

#include "absl/strings/str_cat.h"

#include "kernels/base/file_descriptor.h"
#include "tests/server/rpc/service_world.h"
#include "tests/support/status_matchers.h"

namespace nightshift {
namespace {

constexpr int64_t kLongUs = 60'000'000;
constexpr int64_t kShortUs = 50'000;

class ListenerProbeTest : public ServiceWorld {
 protected:
  ListenerProbeTest() {
    server_.reset();
    options_.listen.push_back("127.0.0.1:0");
    Start();
  }
};

TEST_F(ListenerProbeTest, HearsAServerOnASocketAndOnTcp) {
  ASSERT_EQ(server_->addresses().size(), 2U);
  for (const std::string& address : server_->addresses()) {
    EXPECT_OK(ProbeListener(address, kLongUs)) << address;
  }
  EXPECT_OK(server_->CheckAlive(kLongUs));
}

TEST_F(ListenerProbeTest, NamesAnAddressWhereNobodyListens) {
  const std::string address = absl::StrCat("unix:", folder_.path(), "/nobody");
  EXPECT_THAT(ProbeListener(address, kLongUs), StatusIs(absl::StatusCode::kUnavailable, address));
}

TEST_F(ListenerProbeTest, AConnectionThatNobodyTakesIsNoSignOfLife) {
  const std::string path = folder_.path() + "/deaf";
  const FileDescriptor deaf(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_un address = {};
  address.sun_family = AF_UNIX;
  std::memcpy(address.sun_path, path.c_str(), path.size() + 1);
  ASSERT_EQ(::bind(deaf.get(), static_cast<const sockaddr*>(static_cast<const void*>(&address)),
                   sizeof(address)),
            0);
  ASSERT_EQ(::listen(deaf.get(), 8), 0);
  EXPECT_THAT(ProbeListener("unix:" + path, kShortUs),
              StatusIs(absl::StatusCode::kUnavailable, "nobody answered in time"));
}

}  // namespace
}  // namespace nightshift
