// A large job goes in and out in flat memory.
#include <atomic>
#include <fstream>

#include <gtest/gtest.h>

#include "absl/strings/str_cat.h"

#include "tests/support/runner_world.h"
#include "tests/support/status_matchers.h"

namespace nightshift {
namespace {

#ifdef SANITIZED
// Sanitizers keep freed memory: they watch the same way with fewer rows.
constexpr int64_t kRows = 3000;
constexpr int64_t kMaxGrowthBytes = int64_t{4} << 30;
#else
constexpr int64_t kRows = 100'000;
constexpr int64_t kMaxGrowthBytes = int64_t{64} << 20;
#endif
constexpr int64_t kRowsPerWrite = 1000;

int64_t ResidentBytes() {
  std::ifstream file("/proc/self/statm");
  int64_t total_pages = 0;
  int64_t resident_pages = 0;
  file >> total_pages >> resident_pages;
  return resident_pages * sysconf(_SC_PAGESIZE);
}

// Writes the input file and inserts the rows piece by piece, as an upload does.
void SubmitLargeJob(RunnerWorld& world) {
  v1::JobSpec spec;
  spec.mutable_sampling()->set_max_output_tokens(1);
  JobRecord job;
  job.id = "large";
  job.model = "llama";
  job.spec = spec.SerializeAsString();
  job.input_format = v1::INPUT_FORMAT_JSONL;
  job.input_file = "jobs/large";
  job.create_time_us = 1;
  world.Write("", [&](JobStore& store) { return store.InsertJob(job); });
  std::ofstream file(world.options.state_directory + "/jobs/large");
  int64_t offset = 0;
  for (int64_t first = 0; first < kRows; first += kRowsPerWrite) {
    std::vector<NewRow> rows;
    for (int64_t i = first; i < std::min(first + kRowsPerWrite, kRows); ++i) {
      const std::string line = absl::StrCat("{\"id\": \"row-", i, "\", \"prompt\": [", 20 + i % 300,
                                            ", 21, 22, 23, 24, 25]}\n");
      file << line;
      const int64_t length = static_cast<int64_t>(line.size()) - 1;
      rows.push_back(
          {.index = i, .offset = offset, .length = length, .line = i + 1, .error_body = {}});
      offset += length + 1;
    }
    world.Write("", [&](JobStore& store) { return store.InsertRows("large", rows); });
  }
  file.close();
  world.Write("large", [](JobStore& store) { return store.FinishReceiving("large", 0); });
}

TEST(ScaleTest, ALargeJobGoesInAndOutInFlatMemory) {
  RunnerWorld world(StoreKind::kSqlite);
  world.options.engine.max_block_requests = 256;
  world.Start();
  world.Submit("first", {TokenRow("row-0", {20, 21})});
  world.WaitForEnd("first");

  const int64_t before = ResidentBytes();
  std::atomic<int64_t> most = 0;
  world.actor().events().Subscribe("", [&most] { most = std::max(most.load(), ResidentBytes()); });
  SubmitLargeJob(world);
  const JobRecord job = world.WaitForEnd("large");
  EXPECT_EQ(job.counts.succeeded, kRows);

  int64_t seq = 0;
  while (seq < kRows) {
    const auto results = world.actor().store().ReadResults("large", seq, 64 << 10);
    ASSERT_OK(results);
    ASSERT_FALSE(results->empty());
    seq = results->back().seq;
  }
  most = std::max(most.load(), ResidentBytes());
  RecordProperty("growth_bytes", std::to_string(most - before));
  EXPECT_LT(most - before, kMaxGrowthBytes) << "resident before: " << before;
}

}  // namespace
}  // namespace nightshift
