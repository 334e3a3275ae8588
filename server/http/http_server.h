// HttpServer: answers GET on a loopback address, for monitoring and for people with a browser.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <thread>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace httplib {
class Server;
}

namespace nightshift {

struct HttpResponse {
  int status = 200;
  std::string content_type = "text/plain; charset=utf-8";
  std::string body;
};

// By path, "/metrics". Handlers are called on the server's threads, several at a time, and may read
// the store.
using HttpRoutes = std::map<std::string, std::function<HttpResponse()>>;

// OK for HOST:PORT of a loopback host ("127.0.0.1", "[::1]", "localhost"), else INVALID_ARGUMENT
// with what to do.
absl::Status CheckHttpAddress(const std::string& address);

// Answers 404 for other paths, 405 for other methods, and 421 to who calls it by a name that is not
// loopback's: a page from elsewhere that a browser took for ours. It has no secrets to keep from
// users of the machine and changes nothing.
class HttpServer {
 public:
  // Listens when this returns; port 0: any free one. What `routes` use must outlive it. Errors: as
  // CheckHttpAddress, FAILED_PRECONDITION (in use).
  static absl::StatusOr<std::unique_ptr<HttpServer>> Start(const std::string& address,
                                                           HttpRoutes routes);
  ~HttpServer();
  HttpServer(const HttpServer&) = delete;
  HttpServer& operator=(const HttpServer&) = delete;

  // "http://127.0.0.1:9464", with the real port.
  const std::string& url() const { return url_; }

 private:
  HttpServer(std::unique_ptr<httplib::Server> server, std::string url);

  const std::unique_ptr<httplib::Server> server_;
  const std::string url_;
  std::thread thread_;
};

}  // namespace nightshift
