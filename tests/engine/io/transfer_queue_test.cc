#include "engine/io/transfer_queue.h"

#include <cerrno>

#include <gtest/gtest.h>

#include "kernels/base/checksum.h"
#include "tests/support/aligned_bytes.h"
#include "tests/support/file_bytes.h"
#include "tests/support/status_matchers.h"
#include "tests/support/temporary_folder.h"

namespace nightshift {
namespace {

constexpr int64_t kBlock = kDiskAlignment;

// Pieces of two blocks; the tests are the disk.
class TransferQueueTest : public ::testing::Test {
 protected:
  TransferQueueTest() {
    WriteFileBytes(folder_.path() + "/file", "content");
    file_ = std::make_unique<DiskFile>(*DiskFile::Open(folder_.path() + "/file"));
  }

  Transfer ReadOf(int64_t first_block, size_t blocks) {
    return {.file = file_.get(),
            .offset = first_block * kBlock,
            .memory = memory_.span().first(blocks * kBlock),
            .fence = &fence_};
  }
  Piece Take() {
    const std::optional<Piece> piece = queue_.Take(false);
    EXPECT_TRUE(piece.has_value());
    return piece.value_or(Piece{});
  }
  void ExpectNothing() { EXPECT_FALSE(queue_.Take(false).has_value()); }

  TemporaryFolder folder_;
  std::unique_ptr<DiskFile> file_;
  AlignedBytes memory_{8 * kBlock};
  Fence fence_;
  TransferQueue queue_{2 * kBlock};
};

TEST_F(TransferQueueTest, CutsATransferIntoPiecesAndEndsItWithTheLast) {
  queue_.Submit(ReadOf(3, 5));
  const Piece first = Take();
  const Piece second = Take();
  const Piece third = Take();
  ExpectNothing();
  EXPECT_EQ(first.offset, 3 * kBlock);
  EXPECT_EQ(second.offset, 5 * kBlock);
  EXPECT_EQ(third.offset, 7 * kBlock);
  EXPECT_EQ(third.memory.data(), memory_.span().data() + 4 * kBlock);
  EXPECT_EQ(third.memory.size(), static_cast<size_t>(kBlock));
  queue_.Finish(third, kBlock);
  queue_.Finish(first, 2 * kBlock);
  EXPECT_FALSE(fence_.is_complete());
  queue_.Finish(second, 2 * kBlock);
  EXPECT_OK(fence_.Wait());
  EXPECT_EQ(queue_.counts().read_bytes, 5 * kBlock);
}

TEST_F(TransferQueueTest, ServesTransfersInTheirOrder) {
  Fence other;
  queue_.Submit(ReadOf(0, 3));
  Transfer write = ReadOf(6, 1);
  write.kind = TransferKind::kWrite;
  write.fence = &other;
  queue_.Submit(write);
  for (const int64_t block : {0, 2, 6}) {
    const Piece piece = Take();
    EXPECT_EQ(piece.offset, block * kBlock);
    queue_.Finish(piece, static_cast<int64_t>(piece.memory.size()));
  }
  EXPECT_OK(fence_.Wait());
  EXPECT_OK(other.Wait());
  EXPECT_EQ(queue_.counts().written_bytes, kBlock);
}

// A direct transfer can go on from whole blocks only.
TEST_F(TransferQueueTest, GoesOnAfterShortTransfersAndInterruptions) {
  queue_.Submit(ReadOf(0, 2));
  queue_.Finish(Take(), -EINTR);
  queue_.Finish(Take(), kBlock + 17);
  const Piece rest = Take();
  EXPECT_EQ(rest.offset, kBlock);
  EXPECT_EQ(rest.memory.size(), static_cast<size_t>(kBlock));
  EXPECT_FALSE(fence_.is_complete());
  queue_.Finish(rest, kBlock);
  EXPECT_OK(fence_.Wait());
}

TEST_F(TransferQueueTest, NamesFileAndOffsetOfAnErrorAndGivesNothingMoreOut) {
  queue_.Submit(ReadOf(0, 6));
  const Piece first = Take();
  const Piece second = Take();
  queue_.Finish(second, -EIO);
  ExpectNothing();
  EXPECT_FALSE(fence_.is_complete());
  queue_.Finish(first, 2 * kBlock);
  EXPECT_THAT(fence_.Wait(), StatusIs(absl::StatusCode::kFailedPrecondition, "/file at offset 8192: Input"));
}

TEST_F(TransferQueueTest, TellsAFileThatEndsFromADiskThatIsFull) {
  queue_.Submit(ReadOf(0, 2));
  queue_.Finish(Take(), 0);
  EXPECT_THAT(fence_.Wait(), StatusIs(absl::StatusCode::kDataLoss, "the file ends there"));
  Fence other;
  Transfer write = ReadOf(0, 1);
  write.kind = TransferKind::kWrite;
  write.fence = &other;
  queue_.Submit(write);
  queue_.Finish(Take(), -ENOSPC);
  EXPECT_THAT(other.Wait(), StatusIs(absl::StatusCode::kResourceExhausted, "write "));
}

TEST_F(TransferQueueTest, VerifiesWhatWasRead) {
  const Checksum zeros{.bytes = 5000, .xxh3 = Xxh3(memory_.span().first(5000))};
  Transfer transfer = ReadOf(0, 2);
  transfer.checksum = zeros;
  queue_.Submit(transfer);
  queue_.Finish(Take(), 2 * kBlock);
  EXPECT_OK(fence_.Wait());

  Fence other;
  transfer.fence = &other;
  queue_.Submit(transfer);
  const Piece piece = Take();
  piece.memory[4999] = std::byte{1};
  queue_.Finish(piece, 2 * kBlock);
  EXPECT_THAT(other.Wait(), StatusIs(absl::StatusCode::kDataLoss, "the checksum of 5000 bytes"));
}

TEST_F(TransferQueueTest, PiecesThatWereReturnedAreGivenOutAgain) {
  queue_.Submit(ReadOf(0, 2));
  const Piece piece = Take();
  queue_.Return(piece);
  EXPECT_FALSE(fence_.is_complete());
  queue_.Finish(Take(), 2 * kBlock);
  EXPECT_OK(fence_.Wait());
}

TEST_F(TransferQueueTest, CloseCancelsWhatHasNotBegunAndLetsTheRestFinish) {
  Fence waiting;
  queue_.Submit(ReadOf(0, 4));
  const Piece begun = Take();
  Transfer transfer = ReadOf(4, 1);
  transfer.fence = &waiting;
  queue_.Submit(transfer);
  queue_.Close();
  EXPECT_THAT(waiting.Wait(), StatusIs(absl::StatusCode::kCancelled, "closed"));
  EXPECT_FALSE(fence_.is_complete());
  queue_.Finish(begun, 2 * kBlock);
  EXPECT_THAT(fence_.Wait(), StatusIs(absl::StatusCode::kCancelled, "closed"));
  EXPECT_FALSE(queue_.Take(true).has_value());
  Fence late;
  transfer.fence = &late;
  queue_.Submit(transfer);
  EXPECT_THAT(late.Wait(), StatusIs(absl::StatusCode::kCancelled, "closed"));
}

}  // namespace
}  // namespace nightshift
