// Jobs, models and server info for people (tables, "key: value") and for programs (JSON lines).
// Pure.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "absl/time/time.h"

#include "nightshift/v1/jobs.pb.h"
#include "nightshift/v1/server.pb.h"

namespace nightshift {

// "queued", "running" ...
std::string StateText(v1::JobState state);
// The state whose StateText this is; UNSPECIFIED for none.
v1::JobState ParseState(absl::string_view text);

// What an open job waits for before it can run: another job, its model with the reason, a time. Empty
// for nothing that is known.
std::string WaitsForText(const v1::Job& job);

// Several lines.
std::string JobText(const v1::Job& job, absl::Time now);
std::string JobsTable(const std::vector<v1::Job>& jobs, absl::Time now);
std::string ModelsTable(const std::vector<v1::Model>& models);
std::string ServerInfoText(const v1::ServerInfo& info, const std::string& address, absl::Time now);

// One line of JSON each; counts are numbers, times RFC 3339, absent parts null.
std::string JobJson(const v1::Job& job);
std::string DeletedJson(const std::string& job);
std::string BackupJson(const std::string& folder, const v1::BackupResponse& copied);
std::string FileJson(const std::string& path, int64_t bytes);  // that was written
std::string ModelJson(const v1::Model& model);
std::string ServerInfoJson(const v1::ServerInfo& info, const std::string& address);

// Which lane of the engine held the job's sweeps up, beside the others:
// "read 93 % (compute 41 %, waited for read 52 % of the time)"
std::string BottleneckText(const v1::Report& report);

// What the plan said of the job's sweeps beside what they took:
// "69.0 s observed, 66.2 s predicted (-4 %); compute 60.1 s, 58.0 s predicted; ..."
std::string PredictionText(const v1::Report& report);

// "24 requests, 22 succeeded, 2 failed, 1,234 output tokens in 3m20s"
std::string OutcomeText(const v1::Job& job);

}  // namespace nightshift
