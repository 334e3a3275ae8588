// What a failed result is called in result lines.
#pragma once

#include <string>

#include "nightshift/v1/jobs.pb.h"

namespace nightshift {

struct ResultError {
  bool has_run = false;  // false: the job ended before the request was tried
  int status_code = 0;   // as HTTP, when has_run
  std::string type;      // invalid_request_error or server_error, when has_run
  std::string code;      // lower_snake: batch_cancelled, invalid_json_line, prompt_too_long ...
  std::string message;
  std::string param;  // the field at fault; may be empty
};

// By the reason and metadata of the status' ErrorInfo, else by its code.
ResultError ResultErrorOf(const google::rpc::Status& status);

}  // namespace nightshift
