// ConnectionAcceptor: takes connections from the listening sockets and hands them on, as many as
// there is room for. gRPC 1.51's own loop ends for good at the first error of accept, so that a
// crowd of connections that reaches the limit of descriptors once makes it deaf (CVE-2023-4785);
// this one does not, keeps descriptors for files, and bounds the connections.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <thread>
#include <vector>

#include <sys/types.h>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#include "kernels/base/clock.h"
#include "kernels/base/file_descriptor.h"
#include "kernels/base/mutex.h"
#include "server/rpc/listening_socket.h"

namespace nightshift {

class ConnectionAcceptor {
 public:
  // Takes over the descriptor of a connection that came by this socket; on the acceptor's thread.
  using Handler = std::function<void(const ListeningSocket& socket, int connection)>;

  // Accepts until Stop. Connections beyond `max_connections`, or whose descriptor is one that is
  // kept for files (a quarter of the process's limit, 16 to 256), are closed at once: their clients
  // try again.
  ConnectionAcceptor(std::vector<ListeningSocket> sockets, int64_t max_connections,
                     Handler handler);
  ~ConnectionAcceptor() { Stop(); }
  ConnectionAcceptor(const ConnectionAcceptor&) = delete;
  ConnectionAcceptor& operator=(const ConnectionAcceptor&) = delete;

  // No connection is handed on after this. Idempotent.
  void Stop();

  // Those that were handed on and are open. Any thread.
  int64_t CountConnections();

 private:
  void Loop();
  // Takes what waits at the socket. False when the process or the system has no room for another
  // descriptor.
  bool AcceptFrom(const ListeningSocket& socket);
  bool Admit(int connection);
  void ForgetClosedLocked() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void NoteRefusal(const char* why);

  const std::vector<ListeningSocket> sockets_;
  const int64_t max_connections_;
  const Handler handler_;
  const int first_kept_descriptor_;
  const FileDescriptor wake_;  // an eventfd: the loop ends
  RealClock clock_;
  // The acceptor's thread:
  int64_t num_refused_ = 0;  // since they were last logged
  int64_t refusals_logged_us_;

  Mutex mutex_;
  // By descriptor the inode of the socket: another one, and that connection is closed.
  std::map<int, ino_t> connections_ ABSL_GUARDED_BY(mutex_);
  int64_t forgot_closed_us_ ABSL_GUARDED_BY(mutex_) = 0;
  std::thread thread_;
};

}  // namespace nightshift
