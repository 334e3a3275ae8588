#include "engine/io/disk_queue.h"

#include <algorithm>
#include <cstring>
#include <random>
#include <string>

#include <gtest/gtest.h>

#include "kernels/base/checksum.h"
#include "tests/support/aligned_bytes.h"
#include "tests/support/file_bytes.h"
#include "tests/support/status_matchers.h"
#include "tests/support/temporary_folder.h"

namespace nightshift {
namespace {

constexpr size_t kFileBytes = 3 << 20;

class DiskQueueTest : public ::testing::TestWithParam<DiskBackend> {
 protected:
  void SetUp() override {
    options_.backend = GetParam();
    options_.depth = 8;
    options_.piece_bytes = 64 << 10;
    const auto queue = DiskQueue::Create(options_);
    if (!queue.ok()) {
      GTEST_SKIP() << queue.status();
    }
    std::mt19937 random(1);
    content_.resize(kFileBytes);
    std::generate(content_.begin(), content_.end(), [&] { return static_cast<char>(random()); });
    WriteFileBytes(folder_.path() + "/file", content_);
  }

  // Reads the file in `count` transfers, the last ones first, and expects its content.
  void ExpectContent(DiskQueue& queue, const DiskFile& file, std::span<std::byte> memory,
                     size_t count) {
    const size_t bytes = memory.size() / count;
    std::vector<Fence> fences(count);
    for (size_t i = count; i-- > 0;) {
      queue.Submit({.file = &file,
                    .offset = static_cast<int64_t>(i * bytes),
                    .memory = memory.subspan(i * bytes, bytes),
                    .fence = &fences[i]});
    }
    for (Fence& fence : fences) {
      EXPECT_OK(fence.Wait());
    }
    EXPECT_EQ(std::memcmp(memory.data(), content_.data(), memory.size()), 0);
  }

  TemporaryFolder folder_;
  std::string content_;
  DiskQueueOptions options_;
};

TEST_P(DiskQueueTest, ReadsManyTransfersTogether) {
  ASSERT_OK_AND_ASSIGN(const DiskFile file, DiskFile::Open(folder_.path() + "/file"));
  AlignedBytes memory(kFileBytes);
  ASSERT_OK_AND_ASSIGN(const auto queue, DiskQueue::Create(options_));
  EXPECT_EQ(queue->backend(), GetParam());
  ExpectContent(*queue, file, memory.span(), 48);
  EXPECT_EQ(queue->counts().read_bytes, static_cast<int64_t>(kFileBytes));
  EXPECT_GT(queue->counts().busy_us, 0);
}

TEST_P(DiskQueueTest, ReadsIntoPinnedMemoryAndBesideIt) {
  ASSERT_OK_AND_ASSIGN(const DiskFile file, DiskFile::Open(folder_.path() + "/file"));
  AlignedBytes memory(kFileBytes);
  options_.memory = {memory.span().first(kFileBytes / 3)};
  ASSERT_OK_AND_ASSIGN(const auto queue, DiskQueue::Create(options_));
  ExpectContent(*queue, file, memory.span(), 2);
}

TEST_P(DiskQueueTest, ReadsFromRegisteredFilesAndFromOthers) {
  ASSERT_OK_AND_ASSIGN(const DiskFile first, DiskFile::Open(folder_.path() + "/file"));
  ASSERT_OK_AND_ASSIGN(const DiskFile second, DiskFile::CreateSpill(folder_.path(), kFileBytes));
  ASSERT_OK_AND_ASSIGN(const DiskFile other, DiskFile::Open(folder_.path() + "/file"));
  AlignedBytes memory(kFileBytes);
  options_.fds = {second.fd(), first.fd()};
  ASSERT_OK_AND_ASSIGN(const auto queue, DiskQueue::Create(options_));
  ExpectContent(*queue, first, memory.span(), 3);
  Fence written;
  queue->Submit({.kind = TransferKind::kWrite,
                 .file = &second,
                 .memory = memory.span(),
                 .fence = &written});
  EXPECT_OK(written.Wait());
  ExpectContent(*queue, other, memory.span(), 3);
  ExpectContent(*queue, second, memory.span(), 3);
}

TEST_P(DiskQueueTest, BringsBackWhatItWrote) {
  ASSERT_OK_AND_ASSIGN(const DiskFile spill, DiskFile::CreateSpill(folder_.path(), kFileBytes));
  AlignedBytes memory(kFileBytes);
  std::memcpy(memory.span().data(), content_.data(), kFileBytes);
  ASSERT_OK_AND_ASSIGN(const auto queue, DiskQueue::Create(options_));
  Fence written;
  queue->Submit({.kind = TransferKind::kWrite,
                 .file = &spill,
                 .memory = memory.span(),
                 .fence = &written});
  EXPECT_OK(written.Wait());
  std::fill(memory.span().begin(), memory.span().end(), std::byte{0});
  ExpectContent(*queue, spill, memory.span(), 3);
}

TEST_P(DiskQueueTest, NamesWhereAFileEnds) {
  ASSERT_OK_AND_ASSIGN(const DiskFile file, DiskFile::Open(folder_.path() + "/file"));
  AlignedBytes memory(128 << 10);
  ASSERT_OK_AND_ASSIGN(const auto queue, DiskQueue::Create(options_));
  Fence fence;
  queue->Submit({.file = &file,
                 .offset = kFileBytes - (64 << 10),
                 .memory = memory.span(),
                 .fence = &fence});
  EXPECT_THAT(fence.Wait(),
              StatusIs(absl::StatusCode::kDataLoss, "/file at offset 3145728: the file ends"));
}

TEST_P(DiskQueueTest, FindsAFlippedByte) {
  ASSERT_OK_AND_ASSIGN(const DiskFile file, DiskFile::Open(folder_.path() + "/file"));
  AlignedBytes memory(1 << 20);
  const auto expected = std::as_bytes(std::span(content_)).first(1 << 20);
  ASSERT_OK_AND_ASSIGN(const auto queue, DiskQueue::Create(options_));
  Fence good;
  Fence flipped;
  Transfer transfer{.file = &file,
                    .memory = memory.span(),
                    .fence = &good,
                    .checksum = Checksum{.bytes = 1 << 20, .xxh3 = Xxh3(expected)}};
  queue->Submit(transfer);
  EXPECT_OK(good.Wait());
  transfer.fence = &flipped;
  transfer.checksum->xxh3 ^= 1;
  queue->Submit(transfer);
  EXPECT_THAT(flipped.Wait(), StatusIs(absl::StatusCode::kDataLoss, "the checksum of"));
}

// Every fence completes, whatever had begun.
TEST_P(DiskQueueTest, EndsEveryTransferWhenItIsDestroyed) {
  ASSERT_OK_AND_ASSIGN(const DiskFile file, DiskFile::Open(folder_.path() + "/file"));
  AlignedBytes memory(kFileBytes);
  std::vector<Fence> fences(48);
  {
    ASSERT_OK_AND_ASSIGN(const auto queue, DiskQueue::Create(options_));
    for (size_t i = 0; i < fences.size(); ++i) {
      queue->Submit({.file = &file,
                     .offset = static_cast<int64_t>(i) * (64 << 10),
                     .memory = memory.span().subspan(i * (64 << 10), 64 << 10),
                     .fence = &fences[i]});
    }
  }
  for (Fence& fence : fences) {
    ASSERT_TRUE(fence.is_complete());
    const absl::Status status = fence.Wait();
    EXPECT_TRUE(status.ok() || absl::IsCancelled(status)) << status;
  }
}

TEST_P(DiskQueueTest, RefusesOptionsOutOfRange) {
  options_.depth = 0;
  EXPECT_THAT(DiskQueue::Create(options_), StatusIs(absl::StatusCode::kInvalidArgument, "depth"));
  options_.depth = 1;
  options_.piece_bytes = 1000;
  EXPECT_THAT(DiskQueue::Create(options_), StatusIs(absl::StatusCode::kInvalidArgument, "1000"));
}

INSTANTIATE_TEST_SUITE_P(Backends, DiskQueueTest,
                         ::testing::Values(DiskBackend::kIoUring, DiskBackend::kThreads),
                         [](const auto& backend) { return std::string(DiskBackendName(backend.param)); });

}  // namespace
}  // namespace nightshift
