#include "server/rpc/connection_acceptor.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include <poll.h>
#include <sys/eventfd.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "kernels/base/check.h"
#include "kernels/base/log.h"
#include "kernels/base/thread_name.h"

namespace nightshift {
namespace {

constexpr int64_t kLogIntervalUs = 10'000'000;
// Between looks at which connections are closed, when there seem to be too many.
constexpr int64_t kLookIntervalUs = 50'000;
constexpr int kPauseMs = 100;  // when there is no room for a descriptor
constexpr int kMaxBatch = 64;  // connections of one socket before it is another's turn

int FirstKeptDescriptor() {
  rlimit limit = {};
  CHECK_EQ(::getrlimit(RLIMIT_NOFILE, &limit), 0);
  constexpr rlim_t kMany = 1 << 20;
  const auto most = static_cast<int64_t>(std::min(limit.rlim_cur, kMany));
  return static_cast<int>(most - std::clamp<int64_t>(most / 4, 16, 256));
}

bool LacksRoom(int error) {
  return error == EMFILE || error == ENFILE || error == ENOBUFS || error == ENOMEM;
}

}  // namespace

ConnectionAcceptor::ConnectionAcceptor(std::vector<ListeningSocket> sockets,
                                       int64_t max_connections, Handler handler)
    : sockets_(std::move(sockets)),
      max_connections_(max_connections),
      handler_(std::move(handler)),
      first_kept_descriptor_(FirstKeptDescriptor()),
      wake_(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)),
      refusals_logged_us_(clock_.MonotonicMicros() - kLogIntervalUs),
      thread_([this] { Loop(); }) {
  CHECK_GE(wake_.get(), 0);
}

void ConnectionAcceptor::Stop() {
  if (thread_.joinable()) {
    CHECK_EQ(::eventfd_write(wake_.get(), 1), 0);
    thread_.join();
  }
}

int64_t ConnectionAcceptor::CountConnections() {
  MutexLock lock(mutex_);
  ForgetClosedLocked();
  return static_cast<int64_t>(connections_.size());
}

void ConnectionAcceptor::Loop() {
  NameThread("ns-accept");
  std::vector<pollfd> watched = {{.fd = wake_.get(), .events = POLLIN, .revents = 0}};
  for (const ListeningSocket& socket : sockets_) {
    watched.push_back({.fd = socket.descriptor.get(), .events = POLLIN, .revents = 0});
  }
  bool has_room = true;
  while (true) {
    // What waits stays in the kernel's queue while there is no room.
    const int ready =
        has_room ? ::poll(watched.data(), watched.size(), -1) : ::poll(watched.data(), 1, kPauseMs);
    if (ready > 0 && watched[0].revents != 0) {
      return;
    }
    has_room = true;
    for (const ListeningSocket& socket : sockets_) {
      has_room = AcceptFrom(socket) && has_room;
    }
  }
}

bool ConnectionAcceptor::AcceptFrom(const ListeningSocket& socket) {
  for (int i = 0; i < kMaxBatch; ++i) {
    const int connection =
        ::accept4(socket.descriptor.get(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC);
    if (connection < 0 && LacksRoom(errno)) {
      NoteRefusal(std::strerror(errno));
      return false;
    }
    if (connection < 0 && errno == EAGAIN) {
      return true;
    }
    if (connection < 0) {
      continue;  // of a client that is gone, or a network that is down
    }
    if (Admit(connection)) {
      handler_(socket, connection);
    } else {
      ::close(connection);
      NoteRefusal("all are taken");
    }
  }
  return true;
}

bool ConnectionAcceptor::Admit(int connection) {
  struct stat socket = {};
  if (connection >= first_kept_descriptor_ || ::fstat(connection, &socket) != 0) {
    return false;
  }
  MutexLock lock(mutex_);
  connections_.erase(connection);  // of one that was closed
  if (static_cast<int64_t>(connections_.size()) >= max_connections_ &&
      clock_.MonotonicMicros() - forgot_closed_us_ >= kLookIntervalUs) {
    ForgetClosedLocked();
  }
  if (static_cast<int64_t>(connections_.size()) >= max_connections_) {
    return false;
  }
  connections_[connection] = socket.st_ino;
  return true;
}

void ConnectionAcceptor::ForgetClosedLocked() {
  forgot_closed_us_ = clock_.MonotonicMicros();
  std::erase_if(connections_, [](const auto& entry) {
    struct stat socket = {};
    return ::fstat(entry.first, &socket) != 0 || socket.st_ino != entry.second;
  });
}

void ConnectionAcceptor::NoteRefusal(const char* why) {
  ++num_refused_;
  const int64_t now_us = clock_.MonotonicMicros();
  if (now_us - refusals_logged_us_ < kLogIntervalUs) {
    return;
  }
  LOG(WARNING) << "connections_refused count=" << num_refused_ << " open=" << CountConnections()
               << " max_connections=" << max_connections_
               << " max_descriptor=" << first_kept_descriptor_ - 1 << " reason=\"" << why << "\"";
  refusals_logged_us_ = now_us;
  num_refused_ = 0;
}

}  // namespace nightshift
