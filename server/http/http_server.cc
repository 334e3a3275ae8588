#include "server/http/http_server.h"

#include <thread>
#include <utility>

#include <httplib.h>
#include <sys/socket.h>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"

#include "kernels/base/status_macros.h"
#include "kernels/base/thread_name.h"

namespace nightshift {
namespace {

// A connection holds a thread while it is open. One that says nothing is closed after
// kSilentSeconds, so that a crowd of them delays an answer by seconds only.
constexpr size_t kThreads = 64;
constexpr time_t kSilentSeconds = 1;
constexpr time_t kReadSeconds = 2;
constexpr size_t kMaxRequestBytes = 64 << 10;

struct HostPort {
  std::string host;
  int port = 0;
};

bool IsLoopbackName(absl::string_view host) {
  return host == "127.0.0.1" || host == "[::1]" || host == "localhost";
}

absl::StatusOr<HostPort> SplitAddress(const std::string& address) {
  const size_t colon = address.rfind(':');
  HostPort parts;
  const bool has_port = colon != std::string::npos &&
                        absl::SimpleAtoi(address.substr(colon + 1), &parts.port) &&
                        parts.port >= 0 && parts.port <= 65535;
  parts.host = address.substr(0, colon);
  if (!has_port || !IsLoopbackName(parts.host)) {
    return absl::InvalidArgumentError(
        absl::StrCat("--http-listen is ", address,
                     ", must be 127.0.0.1:PORT, [::1]:PORT or localhost:PORT: what it serves is "
                     "for this machine; "
                     "let an agent here collect it, or reach it through an ssh tunnel"));
  }
  return parts;
}

// The name in a Host header, without its port.
absl::string_view NameOf(absl::string_view host) {
  const size_t colon = host.rfind(':');
  const bool is_port = colon != absl::string_view::npos && host.find(']', colon) == host.npos;
  return is_port ? host.substr(0, colon) : host;
}

// httplib shares ports between processes unless told otherwise.
void SetSocketOptions(int socket) {
  const int yes = 1;
  ::setsockopt(socket, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof(yes));
}

void Refuse(int status, const std::string& reason, httplib::Response& response) {
  response.status = status;
  response.set_content(reason + "\n", "text/plain; charset=utf-8");
}

void Answer(const HttpRoutes& routes, const httplib::Request& request,
            httplib::Response& response) {
  if (!IsLoopbackName(NameOf(request.get_header_value("Host")))) {
    Refuse(421, "this server answers to the names of loopback only", response);
    return;
  }
  if (request.method != "GET" && request.method != "HEAD") {
    response.set_header("Allow", "GET, HEAD");
    Refuse(405, "only GET is served", response);
    return;
  }
  const auto route = routes.find(request.path);
  if (route == routes.end()) {
    std::string paths;
    for (const auto& [path, handler] : routes) {
      absl::StrAppend(&paths, " ", path);
    }
    Refuse(404, absl::StrCat("no such page; there are", paths), response);
    return;
  }
  const HttpResponse answer = route->second();
  response.status = answer.status;
  response.set_content(answer.body, answer.content_type);
}

std::unique_ptr<httplib::Server> MakeServer(HttpRoutes routes) {
  auto server = std::make_unique<httplib::Server>();
  server->new_task_queue = [] { return std::make_unique<httplib::ThreadPool>(kThreads).release(); };
  server->set_socket_options(SetSocketOptions);
  server->set_read_timeout(kReadSeconds);
  server->set_write_timeout(kReadSeconds);
  server->set_keep_alive_timeout(kSilentSeconds);
  server->set_payload_max_length(kMaxRequestBytes);
  server->set_default_headers(
      {{"X-Content-Type-Options", "nosniff"},
       {"Content-Security-Policy", "default-src 'none'; style-src 'unsafe-inline'"},
       {"Cache-Control", "no-store"}});
  server->set_pre_routing_handler(
      [routes = std::move(routes)](const httplib::Request& request, httplib::Response& response) {
        Answer(routes, request, response);
        return httplib::Server::HandlerResponse::Handled;
      });
  return server;
}

}  // namespace

absl::Status CheckHttpAddress(const std::string& address) {
  return SplitAddress(address).status();
}

absl::StatusOr<std::unique_ptr<HttpServer>> HttpServer::Start(const std::string& address,
                                                              HttpRoutes routes) {
  ASSIGN_OR_RETURN(const HostPort parts, SplitAddress(address));
  std::unique_ptr<httplib::Server> server = MakeServer(std::move(routes));
  const std::string name = parts.host == "[::1]" ? "::1" : parts.host;
  int port = parts.port;
  if (port == 0) {
    port = server->bind_to_any_port(name);
  } else if (!server->bind_to_port(name, port)) {
    port = -1;
  }
  if (port < 0) {
    return absl::FailedPreconditionError(
        absl::StrCat("listen on http://", address,
                     ": the address is in use or not permitted; choose another --http-listen"));
  }
  std::string url = absl::StrCat("http://", parts.host, ":", port);
  return std::unique_ptr<HttpServer>(new HttpServer(std::move(server), std::move(url)));
}

HttpServer::HttpServer(std::unique_ptr<httplib::Server> server, std::string url)
    : server_(std::move(server)), url_(std::move(url)) {
  thread_ = std::thread([this] {
    NameThread("ns-http");
    server_->listen_after_bind();
  });
  // What has not begun cannot be stopped.
  while (!server_->is_running()) {
    std::this_thread::yield();
  }
}

HttpServer::~HttpServer() {
  server_->stop();
  thread_.join();
}

}  // namespace nightshift
