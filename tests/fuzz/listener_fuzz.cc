// Input: what a stranger sends to the daemon's socket, behind the beginning of an HTTP/2 connection
// when its first byte is odd. The daemon cuts it off or ignores it, and answers others.
#include <cstring>
#include <string>

#include <sys/socket.h>
#include <sys/time.h>
#include <sys/un.h>
#include <unistd.h>

#include "tests/fuzz/fuzz_input.h"
#include "tests/fuzz/fuzz_server.h"

namespace nightshift {
namespace {

// The preface, and a SETTINGS frame without settings. Source: RFC 9113, sections 3.4 and 6.5.
const std::string& Preface() {
  static const std::string preface =
      "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + std::string("\0\0\0\x04\0\0\0\0\0", 9);
  return preface;
}

int Connect(const std::string& path) {
  sockaddr_un address = {};
  address.sun_family = AF_UNIX;
  CHECK_LT(path.size(), sizeof(address.sun_path));
  std::memcpy(address.sun_path, path.data(), path.size());
  const int fd = ::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  CHECK_GE(fd, 0);
  CHECK_EQ(::connect(fd, reinterpret_cast<const sockaddr*>(&address), sizeof(address)), 0);
  return fd;
}

// Until it is cut off.
void Send(int fd, const std::string& bytes) {
  size_t sent = 0;
  while (sent < bytes.size()) {
    const ssize_t count = ::send(fd, bytes.data() + sent, bytes.size() - sent, MSG_NOSIGNAL);
    if (count <= 0) {
      return;
    }
    sent += static_cast<size_t>(count);
  }
}

void ReadToEnd(int fd) {
  const timeval patience = {.tv_sec = 2, .tv_usec = 0};
  CHECK_EQ(::setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof(patience)), 0);
  std::string bytes(1 << 16, '\0');
  while (::recv(fd, bytes.data(), bytes.size(), 0) > 0) {
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  constexpr int kInputsBetweenLooks = 16;
  static int num_inputs = 0;
  FuzzServer& server = FuzzServer::Get();
  const int fd = Connect(server.socket_path());
  if (size > 0 && data[0] % 2 == 1) {
    Send(fd, Preface());
  }
  Send(fd, std::string(InputText(data + (size > 0 ? 1 : 0), size > 0 ? size - 1 : 0)));
  ::shutdown(fd, SHUT_WR);
  ReadToEnd(fd);
  ::close(fd);
  if (num_inputs++ % kInputsBetweenLooks == 0) {
    server.ExpectAlive();
  }
  return 0;
}

}  // namespace nightshift
