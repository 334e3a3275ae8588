#include "engine/model/random_pack.h"

#include <cmath>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "kernels/convert.h"
#include "kernels/panel_layout.h"
#include "tests/support/expand_panel.h"
#include "tests/support/file_bytes.h"
#include "tests/support/golden.h"
#include "tests/support/status_matchers.h"
#include "tests/support/temporary_folder.h"

namespace nightshift {
namespace {

class RandomPackTest : public ::testing::Test {
 protected:
  RandomPackOptions Options(const std::string& name) {
    RandomPackOptions options;
    options.output = folder_.path() + "/" + name;
    options.shape = FindKnownShape("tiny").value_or(KnownShape());
    return options;
  }
  std::string Extent(const std::string& name) {
    return ReadWholeFile(folder_.path() + "/" + name + "/" + kExtentFile);
  }
  // A tensor as rows of numbers.
  std::vector<std::vector<float>> Numbers(const std::string& pack_name, const std::string& name) {
    const auto pack = Pack::Open(folder_.path() + "/" + pack_name);
    EXPECT_OK(pack);
    const TensorEntry& tensor = *(*pack)->Find(name);
    std::vector<std::vector<float>> rows;
    for (size_t i = 0; i < tensor.shards.size(); ++i) {
      std::vector<std::byte> bytes(static_cast<size_t>(tensor.shards[i].bytes));
      EXPECT_OK((*pack)->ReadShard(tensor, i, bytes));
      const int64_t padded = RoundUp(tensor.inputs, kInputsMultiple);
      const std::vector<float> stored = Values(tensor, bytes);
      for (int64_t n = 0; n < RoundUp(tensor.shards[i].outputs, kPanelOutputs); ++n) {
        rows.emplace_back();
        for (int64_t k = 0; k < padded; ++k) {
          rows.back().push_back(stored[static_cast<size_t>(PanelOffset(n, k, padded))]);
        }
      }
    }
    return rows;
  }

  // Panels as floats.
  static std::vector<float> Values(const TensorEntry& tensor, const std::vector<std::byte>& bytes) {
    std::vector<float> values;
    if (IsFloat(tensor.dtype)) {
      values.resize(bytes.size() / static_cast<size_t>(FloatBytes(tensor.dtype)));
      WidenToF32(tensor.dtype, bytes.data(), static_cast<int64_t>(values.size()), values.data());
      return values;
    }
    const size_t panel = static_cast<size_t>(StoredPanelBytes(tensor.dtype, tensor.inputs));
    for (size_t first = 0; first < bytes.size(); first += panel) {
      const std::vector<float> part =
          ExpandPanel(tensor.dtype, std::span(bytes).subspan(first, panel), tensor.inputs);
      values.insert(values.end(), part.begin(), part.end());
    }
    return values;
  }

  TemporaryFolder folder_;
};

TEST_F(RandomPackTest, TheSameSeedGivesTheSameDigestAndAnotherSeedAnother) {
  RandomPackOptions options = Options("a");
  options.seed = 7;
  ASSERT_OK_AND_ASSIGN(const PackManifest a, WriteRandomPack(options));
  options.output = folder_.path() + "/b";
  ASSERT_OK_AND_ASSIGN(const PackManifest b, WriteRandomPack(options));
  options.output = folder_.path() + "/c";
  options.seed = 8;
  ASSERT_OK_AND_ASSIGN(const PackManifest c, WriteRandomPack(options));
  EXPECT_EQ(a.digest, b.digest);
  EXPECT_NE(a.digest, c.digest);
  EXPECT_EQ(Extent("a"), Extent("b"));
}

TEST_F(RandomPackTest, OpensAsTheShapeThatItWasMadeOf) {
  ASSERT_OK(WriteRandomPack(Options("pack")));
  ASSERT_OK_AND_ASSIGN(const auto pack, Pack::Open(folder_.path() + "/pack"));
  EXPECT_EQ(pack->manifest().model_name, "tiny");
  EXPECT_EQ(pack->manifest().source_format, "random");
  EXPECT_EQ(pack->manifest().tensors.size(), TensorsOf(Options("").shape).size());
}

TEST_F(RandomPackTest, RowsOfMatricesHaveANormNextToOne) {
  for (const DType type :
       {DType::kBF16, DType::kF32, DType::kU4G64, DType::kI4G64, DType::kI8G64, DType::kU8G64}) {
    RandomPackOptions options = Options(DTypeName(type));
    options.weights = type;
    ASSERT_OK(WriteRandomPack(options));
    for (const char* name : {"layers.0.q.weight", "layers.3.down.weight", "head"}) {
      double mean = 0;
      double squares = 0;
      double count = 0;
      const auto rows = Numbers(DTypeName(type), name);
      for (const std::vector<float>& row : rows) {
        for (const float value : row) {
          mean += static_cast<double>(value);
          squares += static_cast<double>(value) * static_cast<double>(value);
          count += 1;
        }
      }
      // The exponent is a whole number: half a step of it, a factor of 1.42, either way; and the
      // mean of `count` signs within five of its deviations.
      const double row_norm = std::sqrt(squares / static_cast<double>(rows.size()));
      EXPECT_GT(row_norm, 1 / 1.43) << name;
      EXPECT_LT(row_norm, 1.43) << name;
      EXPECT_LT(std::abs(mean / count), 5 * std::sqrt(squares / count / count)) << name;
    }
  }
}

TEST_F(RandomPackTest, TensorsAndShardsHaveNumbersOfTheirOwn) {
  ASSERT_OK(WriteRandomPack(Options("pack")));
  const auto first = Numbers("pack", "layers.0.q.weight");
  EXPECT_NE(first, Numbers("pack", "layers.1.q.weight"));
  EXPECT_NE(first.front(), first.back());
  EXPECT_EQ(Numbers("pack", "embed").size(), 512U);
}

TEST_F(RandomPackTest, PaddingIsZero) {
  for (const DType type : {DType::kBF16, DType::kU4G64, DType::kU8G64}) {
    RandomPackOptions options = Options(DTypeName(type));
    options.weights = type;
    options.shape.config.model_width = options.shape.config.embedding_width = 72;
    options.shape.config.ffn_width = 40;
    ASSERT_OK(WriteRandomPack(options));
    const auto rows = Numbers(DTypeName(type), "layers.0.gate.weight");
    ASSERT_EQ(rows.size(), 64U);
    ASSERT_EQ(rows[0].size(), 96U);
    for (size_t n = 0; n < rows.size(); ++n) {
      for (size_t k = 0; k < rows[n].size(); ++k) {
        EXPECT_EQ(rows[n][k] == 0.0F, n >= 40 || k >= 72) << n << ", " << k;
      }
    }
  }
}

TEST_F(RandomPackTest, PaddingOfGroupsIsZeroAsStored) {
  RandomPackOptions options = Options("pack");
  options.weights = DType::kU4G64;
  options.shape.config.model_width = options.shape.config.embedding_width = 72;
  options.shape.config.ffn_width = 40;
  ASSERT_OK(WriteRandomPack(options));
  ASSERT_OK_AND_ASSIGN(const auto pack, Pack::Open(folder_.path() + "/pack"));
  const TensorEntry& tensor = *pack->Find("layers.0.gate.weight");
  std::vector<std::byte> panel(static_cast<size_t>(tensor.shards.at(0).bytes));
  ASSERT_OK(pack->ReadShard(tensor, 0, panel));
  ASSERT_EQ(panel.size(), 96U * 32 + 2 * 2 * 64 * 2);
  for (size_t n = 0; n < 64; ++n) {
    for (size_t k = n < 40 ? 72 : 0; k < 96; k += 2) {
      EXPECT_EQ(panel[k / 2 * 64 + n], std::byte{0}) << n << ", " << k;
    }
    for (size_t number = 96 * 16 + n; n >= 40 && 2 * number < panel.size(); number += 64) {
      EXPECT_EQ(panel[2 * number], std::byte{0}) << n;
      EXPECT_EQ(panel[2 * number + 1], std::byte{0}) << n;
    }
  }
}

TEST_F(RandomPackTest, AFullDiskIsRefusedWithNumbersBeforeAnythingIsWritten) {
  RandomPackOptions options = Options("pack");
  options.shape = FindKnownShape("llama-3.1-405b").value_or(KnownShape());
  options.shape.config.num_layers = kMaxLayers;  // 26 TB
  EXPECT_THAT(WriteRandomPack(options),
              StatusIs(absl::StatusCode::kResourceExhausted, "takes 26"));
  EXPECT_TRUE(std::filesystem::is_empty(folder_.path()));
}

TEST_F(RandomPackTest, ATargetThatExistsIsLeftAlone) {
  ASSERT_OK(WriteRandomPack(Options("pack")));
  const std::string before = Extent("pack");
  RandomPackOptions options = Options("pack");
  options.seed = 1;
  EXPECT_THAT(WriteRandomPack(options), StatusIs(absl::StatusCode::kAlreadyExists, "pack"));
  EXPECT_EQ(Extent("pack"), before);
}

}  // namespace
}  // namespace nightshift
