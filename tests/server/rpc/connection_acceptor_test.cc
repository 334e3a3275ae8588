#include "server/rpc/connection_acceptor.h"

#include <cstring>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "absl/strings/str_cat.h"

#include "kernels/base/check.h"
#include "kernels/base/mutex.h"
#include "tests/support/status_matchers.h"
#include "tests/support/temporary_folder.h"

namespace nightshift {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::SizeIs;

// A client's end of a connection.
FileDescriptor Connect(const std::string& path) {
  sockaddr_un address = {};
  address.sun_family = AF_UNIX;
  std::memcpy(address.sun_path, path.c_str(), path.size() + 1);
  FileDescriptor made(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  CHECK_EQ(::connect(made.get(), static_cast<const sockaddr*>(static_cast<const void*>(&address)),
                     sizeof(address)),
           0);
  return made;
}

// Waits until the other side has written or closed. True when it closed, or was never there.
bool IsClosed(const FileDescriptor& client) {
  char byte = 0;
  return ::recv(client.get(), &byte, 1, 0) != 1;
}

class ConnectionAcceptorTest : public ::testing::Test {
 protected:
  void Start(int64_t max_connections) {
    auto sockets = ListenOn("unix:" + path_);
    ASSERT_OK(sockets);
    acceptor_ = std::make_unique<ConnectionAcceptor>(
        *std::move(sockets), max_connections, [this](const ListeningSocket&, int connection) {
          // What a server says first; its client knows that it is served. Who only asks whether
          // anybody listens has left.
          ::send(connection, "x", 1, MSG_NOSIGNAL);
          MutexLock lock(mutex_);
          served_.emplace_back(connection);
        });
  }
  void CloseFirst() {
    MutexLock lock(mutex_);
    served_.erase(served_.begin());
  }

  TemporaryFolder folder_;
  const std::string path_ = folder_.path() + "/socket";
  Mutex mutex_;
  std::vector<FileDescriptor> served_ ABSL_GUARDED_BY(mutex_);
  std::unique_ptr<ConnectionAcceptor> acceptor_;
};

TEST_F(ConnectionAcceptorTest, ClosesConnectionsBeyondTheMostAndGoesOnWhenOneHasEnded) {
  Start(2);
  const FileDescriptor first = Connect(path_);
  const FileDescriptor second = Connect(path_);
  EXPECT_FALSE(IsClosed(first));
  EXPECT_FALSE(IsClosed(second));
  EXPECT_TRUE(IsClosed(Connect(path_)));
  EXPECT_EQ(acceptor_->CountConnections(), 2);
  CloseFirst();
  EXPECT_EQ(acceptor_->CountConnections(), 1);
  EXPECT_FALSE(IsClosed(Connect(path_)));
}

// CVE-2023-4785: accept fails for want of descriptors, and the loop must live.
TEST_F(ConnectionAcceptorTest, GoesOnWhenThereAreDescriptorsAgain) {
  Start(1000);
  const FileDescriptor waiting(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  rlimit limit = {};
  ASSERT_EQ(::getrlimit(RLIMIT_NOFILE, &limit), 0);
  const rlimit no_more = {.rlim_cur = static_cast<rlim_t>(waiting.get()) + 1,
                          .rlim_max = limit.rlim_max};
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &no_more), 0);
  sockaddr_un address = {};
  address.sun_family = AF_UNIX;
  std::memcpy(address.sun_path, path_.c_str(), path_.size() + 1);
  ASSERT_EQ(
      ::connect(waiting.get(), static_cast<const sockaddr*>(static_cast<const void*>(&address)),
                sizeof(address)),
      0);
  EXPECT_LT(::fcntl(0, F_DUPFD, 0), 0) << "there is room for another descriptor";
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &limit), 0);
  EXPECT_FALSE(IsClosed(waiting));
}

// A quarter of what the process may have stays for files, at least 16.
TEST_F(ConnectionAcceptorTest, KeepsDescriptorsForFiles) {
  rlimit limit = {};
  ASSERT_EQ(::getrlimit(RLIMIT_NOFILE, &limit), 0);
  const FileDescriptor next(::dup(0));
  const rlimit few = {.rlim_cur = static_cast<rlim_t>(next.get()) + 40, .rlim_max = limit.rlim_max};
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &few), 0);
  Start(1000);
  std::vector<FileDescriptor> clients;
  while (clients.size() < 20) {
    clients.push_back(Connect(path_));
    if (IsClosed(clients.back())) {
      break;
    }
  }
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &limit), 0);
  EXPECT_THAT(clients, SizeIs(::testing::Lt(20)));
  EXPECT_GE(acceptor_->CountConnections(), 1);
}

TEST_F(ConnectionAcceptorTest, TakesNothingOnceItIsStopped) {
  Start(2);
  acceptor_->Stop();
  const FileDescriptor client = Connect(path_);
  EXPECT_EQ(acceptor_->CountConnections(), 0);
  acceptor_.reset();
  EXPECT_TRUE(IsClosed(client));
}

TEST_F(ConnectionAcceptorTest, ASocketIsItsOwnersAndNotTakenFromWhoListens) {
  Start(1);
  struct stat file = {};
  ASSERT_EQ(::stat(path_.c_str(), &file), 0);
  EXPECT_EQ(file.st_mode & 0777U, 0600U);
  EXPECT_THAT(ListenOn("unix:" + path_), StatusIs(absl::StatusCode::kFailedPrecondition,
                                                  "another process listens on " + path_));
  acceptor_.reset();
  EXPECT_OK(ListenOn("unix:" + path_));
}

TEST(ListeningSocketTest, BindsAFreePortAndRefusesATakenOne) {
  const auto free = ListenOn("127.0.0.1:0");
  ASSERT_OK(free);
  const std::string& address = free->front().address;
  EXPECT_NE(address, "127.0.0.1:0");
  EXPECT_THAT(ListenOn(address), StatusIs(absl::StatusCode::kFailedPrecondition,
                                          address + ": Address already in use"));
}

}  // namespace
}  // namespace nightshift
