// One attempt at SubmitJobStream: header, chunks of 256 KiB with CRC32C, finish with sha256; from
// where an earlier attempt broke off.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "absl/status/statusor.h"

#include "client/input_file.h"

#include "nightshift/v1/jobs.grpc.pb.h"

namespace nightshift {

struct SubmitOptions {
  std::string job_id;      // optional
  std::string request_id;  // UUID: the same one never makes a second job
  v1::JobSpec spec;
  bool validate_only = false;
};

// Sends the input from `offset` on, which the daemon has kept so much of; returns the job once it is
// durable. The server may answer before it has read everything (a job
// that it has already, a refusal).
// Errors: the server's; INVALID_ARGUMENT when the file changed since it was opened; CANCELLED by
// keep_waiting.
absl::StatusOr<v1::Job> UploadInput(v1::JobService::Stub& stub, const SubmitOptions& submission,
                                    const InputFile& input, int64_t offset,
                                    const std::function<bool()>& keep_waiting);

}  // namespace nightshift
