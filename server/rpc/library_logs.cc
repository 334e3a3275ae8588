#include "server/rpc/library_logs.h"

#include <string>

#include <google/protobuf/stubs/logging.h>
#include <grpc/support/log.h>

#include "kernels/base/log.h"

namespace nightshift {
namespace {

void LogOfGrpc(gpr_log_func_args* line) {
  if (line->severity == GPR_LOG_SEVERITY_ERROR) {
    LOG(WARNING) << "grpc file=" << line->file << " line=" << line->line << " message=\""
                 << line->message << "\"";
  }
}

// Its messages may quote what could not be parsed: only where they come from is told.
void LogOfProtobuf(google::protobuf::LogLevel level, const char* file, int line,
                   const std::string& /*message*/) {
  if (level >= google::protobuf::LOGLEVEL_WARNING) {
    LOG(WARNING) << "protobuf file=" << file << " line=" << line;
  }
}

}  // namespace

void RouteLibraryLogs() {
  gpr_set_log_function(LogOfGrpc);
  google::protobuf::SetLogHandler(LogOfProtobuf);
}

}  // namespace nightshift
