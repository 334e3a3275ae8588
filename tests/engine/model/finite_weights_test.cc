#include "engine/model/finite_weights.h"

#include <limits>
#include <vector>

#include <gtest/gtest.h>

#include "engine/model/gguf_types.h"
#include "engine/model/pack_import.h"
#include "tests/support/status_matchers.h"
#include "tests/support/temporary_folder.h"
#include "tests/support/tiny_gguf.h"

namespace nightshift {
namespace {

constexpr absl::StatusCode kInvalid = absl::StatusCode::kInvalidArgument;

template <typename T>
absl::Status Check(DType dtype, const std::vector<T>& row) {
  SourceTensor tensor;
  tensor.name = "w";
  tensor.dtype = dtype;
  return CheckFiniteRow(tensor, 5, std::as_bytes(std::span(row)));
}

TEST(FiniteWeightsTest, FirstValueThatIsNoNumberIsNamed) {
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  EXPECT_OK(Check<float>(DType::kF32, {0.0F, -3e38F, 1e-45F}));
  EXPECT_THAT(Check<float>(DType::kF32, {0.0F, -kInfinity, kInfinity}),
              StatusIs(kInvalid, "tensor w row 5 value 1 is NaN or infinite"));
  EXPECT_OK(Check<uint16_t>(DType::kF16, {0x7bff, 0xfbff, 0x0001, 0x8000}));
  EXPECT_THAT(Check<uint16_t>(DType::kF16, {0x7bff, 0x0001, 0xfc00}),
              StatusIs(kInvalid, "value 2 is"));
  EXPECT_OK(Check<uint16_t>(DType::kBF16, {0x7f7f, 0xff7f, 0x7c00}));
  EXPECT_THAT(Check<uint16_t>(DType::kBF16, {0x7fc1}), StatusIs(kInvalid, "value 0 is"));
}

// A Llama in GGUF whose tensor `name` has `bytes` at `offset`.
class DamagedImportTest : public ::testing::Test {
 protected:
  absl::Status ImportDamaged(const std::string& name, size_t offset, const std::string& bytes) {
    TinyGguf source;
    source.AddTensors();
    std::string file = source.writer.bytes();
    const size_t tensor = file.find(source.tensors.at(name).bytes);
    file.replace(tensor + offset, bytes.size(), bytes);
    const std::string path = folder_.path() + "/tiny.gguf";
    WriteFileBytes(path, file);
    const auto checkpoint = OpenCheckpoint(path);
    if (!checkpoint.ok()) {
      return checkpoint.status();
    }
    return ImportPack(*checkpoint, {.output = folder_.path() + "/pack"}).status();
  }

  TemporaryFolder folder_;
};

TEST_F(DamagedImportTest, InfiniteScaleIsRefusedWithTensorAndBlock) {
  // Row 3 of two Q8_0 blocks of 34 bytes; its second block.
  EXPECT_THAT(ImportDamaged("token_embd.weight", 7 * 34, std::string("\x00\x7c", 2)),
              StatusIs(kInvalid, "token_embd.weight row 3 block 1 of Q8_0"));
}

TEST_F(DamagedImportTest, NanMinimumIsRefusedAtItsRowOfTheFile) {
  // Row 33 of two Q4_1 blocks of 20 bytes; q rows change places on the way.
  EXPECT_THAT(ImportDamaged("blk.0.attn_q.weight", 33 * 40 + 2, std::string("\x01\xfe", 2)),
              StatusIs(kInvalid, "blk.0.attn_q.weight row 33 block 0 of Q4_1"));
}

TEST_F(DamagedImportTest, NanInAMatrixOrVectorOfFloatsIsRefused) {
  EXPECT_THAT(
      ImportDamaged("blk.0.ffn_down.weight", (96 * 2 + 7) * 4, std::string("\x00\x00\xc0\x7f", 4)),
      StatusIs(kInvalid, "blk.0.ffn_down.weight row 2 value 7 is NaN or infinite"));
  EXPECT_THAT(ImportDamaged("output_norm.weight", 12, std::string("\x00\x00\x80\xff", 4)),
              StatusIs(kInvalid, "output_norm.weight row 0 value 3 is NaN or infinite"));
}

}  // namespace
}  // namespace nightshift
