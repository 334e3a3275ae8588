#include "engine/model/gguf.h"

#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "tests/support/gguf_writer.h"
#include "tests/support/status_matchers.h"
#include "tests/support/temporary_folder.h"
#include "tests/support/tiny_gguf.h"

namespace nightshift {
namespace {

class GgufTest : public ::testing::Test {
 protected:
  absl::StatusOr<std::unique_ptr<GgufCheckpoint>> Open(const std::string& bytes) {
    WriteFileBytes(path(), bytes);
    return GgufCheckpoint::Open(path());
  }
  std::string path() const { return folder_.path() + "/model.gguf"; }

  TemporaryFolder folder_;
};

std::string TinyBytes() {
  TinyGguf tiny;
  tiny.AddTensors();
  return tiny.writer.bytes();
}

TEST_F(GgufTest, ReadsScalarsAndArrays) {
  GgufWriter writer;
  writer.Text("text", std::string("a\0b", 3));
  writer.Bool("yes", true);
  writer.Number("half", 0.5F);
  writer.Raw("minus", 1, "\xfe");
  writer.Raw("wide", 10, std::string("\x01\0\0\0\x01\0\0\0", 8));
  writer.Texts("names", {"x", "", "yz"});
  writer.Integers("numbers", {-1, 5});
  ASSERT_OK_AND_ASSIGN(const auto gguf, Open(writer.bytes()));
  const GgufMetadata& metadata = gguf->metadata();
  EXPECT_EQ(metadata.scalars["text"].get<std::string>(), std::string("a\0b", 3));
  EXPECT_EQ(metadata.scalars["yes"], true);
  EXPECT_EQ(metadata.scalars["half"], 0.5);
  EXPECT_EQ(metadata.scalars["minus"], -2);
  EXPECT_EQ(metadata.scalars["wide"], (int64_t{1} << 32) + 1);
  EXPECT_EQ(metadata.string_arrays.at("names"), (std::vector<std::string>{"x", "", "yz"}));
  EXPECT_EQ(metadata.integer_arrays.at("numbers"), (std::vector<int64_t>{-1, 5}));
}

TEST_F(GgufTest, GivesTensorsSlowestDimensionFirst) {
  ASSERT_OK_AND_ASSIGN(const auto gguf, Open(TinyBytes()));
  const SourceTensor& embedding = *gguf->Find("token_embd.weight");
  EXPECT_EQ(embedding.shape, (std::vector<int64_t>{kTinyGgufVocabulary, kTinyGgufWidth}));
  EXPECT_EQ(embedding.rows, kTinyGgufVocabulary);
  EXPECT_EQ(embedding.row_bytes, 2 * 34);
}

TEST_F(GgufTest, HonoursTheAlignmentThatTheFileStates) {
  GgufWriter writer;
  writer.alignment = 256;
  writer.Integer("general.alignment", 256);
  writer.Tensor("a", {3}, kGgufF32, std::string(12, 'a'));
  writer.Tensor("b", {1}, kGgufF32, std::string(4, 'b'));
  ASSERT_OK_AND_ASSIGN(const auto gguf, Open(writer.bytes()));
  std::string row(4, ' ');
  ASSERT_OK(gguf->ReadRows(*gguf->Find("b"), 0, std::as_writable_bytes(std::span(row))));
  EXPECT_EQ(row, "bbbb");
}

TEST_F(GgufTest, MissingFileIsNotFound) {
  EXPECT_THAT(GgufCheckpoint::Open(path()), StatusIs(absl::StatusCode::kNotFound, "model.gguf"));
}

// Wherever the file ends too early, that is an error and not a crash.
TEST_F(GgufTest, EveryTruncationIsRefused) {
  TinyGguf tiny;
  tiny.writer.Texts("tokens", {"a", "b"});
  tiny.AddTensors();
  const std::string bytes = tiny.writer.bytes();
  ASSERT_OK(Open(bytes));
  const size_t head_bytes = tiny.writer.head().size();
  for (size_t length = bytes.size(); length-- > 0;) {
    if (length < head_bytes || length % 97 == 0) {
      std::filesystem::resize_file(path(), length);
      ASSERT_FALSE(GgufCheckpoint::Open(path()).ok()) << length;
    }
  }
}

// A changed byte gives an error or a checkpoint whose tensors lie inside the file.
TEST_F(GgufTest, NoChangedByteOfTheHeadGetsATensorOutsideTheFile) {
  TinyGguf tiny;
  tiny.AddTensors();
  const std::string bytes = tiny.writer.bytes();
  WriteFileBytes(path(), bytes);
  std::fstream file(path(), std::ios::binary | std::ios::in | std::ios::out);
  const auto write_byte = [&file](size_t offset, char byte) {
    file.seekp(static_cast<std::streamoff>(offset)).put(byte).flush();
  };
  for (size_t i = 0; i < tiny.writer.head().size(); ++i) {
    for (const char flip : {'\x01', '\xff'}) {
      write_byte(i, static_cast<char>(bytes[i] ^ flip));
      const auto gguf = GgufCheckpoint::Open(path());
      for (size_t t = 0; gguf.ok() && t < (*gguf)->tensors().size(); ++t) {
        const SourceTensor& tensor = (*gguf)->tensors()[t];
        ASSERT_LE(tensor.offset + tensor.rows * tensor.row_bytes,
                  static_cast<int64_t>(bytes.size()));
      }
    }
    write_byte(i, bytes[i]);
  }
  EXPECT_OK(GgufCheckpoint::Open(path()));
}

struct MalformedCase {
  const char* name;
  std::string (*bytes)();
  absl::StatusCode code;
  const char* message;
};

class MalformedGgufTest : public GgufTest, public ::testing::WithParamInterface<MalformedCase> {};

TEST_P(MalformedGgufTest, IsRefused) {
  EXPECT_THAT(Open(GetParam().bytes()), StatusIs(GetParam().code, GetParam().message));
}

constexpr absl::StatusCode kInvalid = absl::StatusCode::kInvalidArgument;
constexpr absl::StatusCode kLost = absl::StatusCode::kDataLoss;

// A file with one record of a tensor, and 64 bytes of data.
std::string OneTensor(const std::vector<uint64_t>& dimensions, uint32_t type, uint64_t offset) {
  GgufWriter writer;
  writer.TensorAt("t", dimensions, type, offset);
  std::string bytes = writer.bytes();
  return bytes + std::string(64, 'd');
}

// A file with one key of any type and bytes.
std::string OneKey(uint32_t type, const std::string& value) {
  GgufWriter writer;
  writer.Raw("k", type, value);
  return writer.bytes();
}

std::string OneArray(uint32_t element_type, uint64_t count, const std::string& elements) {
  GgufWriter writer;
  writer.Array("k", element_type, count, elements);
  return writer.bytes();
}

template <typename Change>
std::string Changed(Change change) {
  GgufWriter writer;
  change(writer);
  return writer.bytes();
}

const MalformedCase kMalformed[] = {
    {"Empty", [] { return std::string(); }, kLost, "ends at byte 0"},
    {"WrongMagic", [] { return Changed([](GgufWriter& w) { w.magic = 0x47475546; }); }, kInvalid,
     "not a GGUF file"},
    {"Version1", [] { return Changed([](GgufWriter& w) { w.version = 1; }); }, kInvalid,
     "GGUF version 1"},
    {"BigEndian", [] { return Changed([](GgufWriter& w) { w.version = 3U << 24; }); }, kInvalid,
     "little-endian"},
    {"HugeTensorCount", [] { return Changed([](GgufWriter& w) { w.extra_tensors = 1LL << 62; }); },
     kInvalid, "tensors, at most"},
    {"NegativeKeyCount", [] { return Changed([](GgufWriter& w) { w.extra_keys = -1; }); }, kInvalid,
     "keys, at most"},
    {"OneKeyTooFew",
     [] {
       return Changed([](GgufWriter& w) {
         w.extra_keys = 1;
         w.Text("a", std::string(100, 'x'));
         w.Text("a", "y");
       });
     },
     kInvalid, "occurs twice"},
    {"EmptyKey", [] { return Changed([](GgufWriter& w) { w.Integer("", 1); }); }, kInvalid,
     "is empty"},
    {"RepeatedKey",
     [] {
       return Changed([](GgufWriter& w) {
         w.Integer("k", 1);
         w.Integer("k", 1);
       });
     },
     kInvalid, "key k is empty or occurs twice"},
    {"UnknownValueType", [] { return OneKey(13, "12345678"); }, kInvalid, "unknown type 13"},
    {"TextLongerThanTheFile", [] { return OneKey(8, std::string(8, '\x7f')); }, kInvalid,
     "bytes of a string"},
    {"NumberAbove63Bits", [] { return OneKey(10, std::string(8, '\xff')); }, kInvalid,
     "above 2^63 - 1"},
    {"ArrayOfUnknownType", [] { return OneArray(77, 1, "12345678"); }, kInvalid,
     "array of type 77"},
    {"ArrayOfArrays", [] { return OneArray(9, 1, std::string(12, '\0')); }, kInvalid,
     "array of arrays"},
    {"HugeArray", [] { return OneArray(4, UINT64_MAX / 4, "1234"); }, kInvalid, "array elements"},
    {"ArrayOneTooLong", [] { return OneArray(10, 13, std::string(64, '1')); }, kInvalid,
     "array elements"},
    {"ArrayOfLongTexts", [] { return OneArray(8, 2, GgufText("a") + std::string(8, '\x22')); },
     kInvalid, "bytes of a string"},
    {"AlignmentNotAPowerOfTwo",
     [] { return Changed([](GgufWriter& w) { w.Integer("general.alignment", 48); }); }, kInvalid,
     "not a power of two"},
    {"AlignmentZero",
     [] { return Changed([](GgufWriter& w) { w.Integer("general.alignment", 0); }); }, kInvalid,
     "not a power of two"},
    {"AlignmentIsText",
     [] { return Changed([](GgufWriter& w) { w.Text("general.alignment", "32"); }); }, kInvalid,
     "not a power of two"},
    {"NoDimensions", [] { return OneTensor({}, kGgufF32, 0); }, kInvalid, "0 dimensions"},
    {"FiveDimensions",
     [] {
       return OneTensor({1, 1, 1, 1, 1}, kGgufF32, 0);
     },
     kInvalid, "5 dimensions"},
    {"DimensionOfZero",
     [] {
       return OneTensor({4, 0}, kGgufF32, 0);
     },
     kInvalid, "dimension of no size"},
    {"DimensionAbove63Bits", [] { return OneTensor({UINT64_MAX}, kGgufF32, 0); }, kInvalid,
     "dimension of no size"},
    {"ProductOverflows",
     [] {
       return OneTensor({1ULL << 31, 1ULL << 31, 4}, kGgufF32, 0);
     },
     kInvalid, "overflows"},
    {"RowOverflows", [] { return OneTensor({1ULL << 62}, kGgufF32, 0); }, kInvalid, "overflows"},
    {"BlockRowOverflows",
     [] {
       return OneTensor({1ULL << 62, 2}, kGgufQ8_0, 0);
     },
     kInvalid, "overflows"},
    {"ProductWrapsToAFittingSize",
     [] {
       return OneTensor({1ULL << 32, 1ULL << 32, 1}, kGgufF32, 0);
     },
     kInvalid, "overflows"},
    {"RowNotWholeBlocks", [] { return OneTensor({33}, kGgufQ4_0, 0); }, kInvalid,
     "rows of 33 values, which do not fill Q4_0's blocks of 32"},
    {"RowNotWholeSuperBlocks",
     [] {
       return OneTensor({288, 2}, 12, 0);
     },
     kInvalid, "rows of 288 values, which do not fill Q4_K's blocks of 256"},
    {"SuperBlockRowOverflows",
     [] {
       return OneTensor({1ULL << 62, 4}, 14, 0);
     },
     kInvalid, "overflows"},
    {"TypeIq4Xs", [] { return OneTensor({256}, 23, 0); }, kInvalid,
     "tensor t has the type IQ4_XS; supported: F32, F16, BF16, Q8_0, Q4_0, Q4_1, Q5_0, Q5_1, Q2_K, "
     "Q3_K, Q4_K, Q5_K, Q6_K"},
    {"TypeIq4Nl", [] { return OneTensor({32}, 20, 0); }, kInvalid, "has the type IQ4_NL;"},
    {"TypeTq20", [] { return OneTensor({256}, 35, 0); }, kInvalid, "has the type TQ2_0;"},
    {"TypeMxfp4", [] { return OneTensor({32}, 39, 0); }, kInvalid, "has the type MXFP4;"},
    {"TypeQ8K", [] { return OneTensor({256}, 15, 0); }, kInvalid, "has the type Q8_K;"},
    {"TypeUnknown", [] { return OneTensor({4}, 1000, 0); }, kInvalid, "number 1000"},
    {"OffsetBeyondTheFile", [] { return OneTensor({4}, kGgufF32, 1 << 20); }, kInvalid,
     "is its place"},
    {"OffsetAbove63Bits", [] { return OneTensor({4}, kGgufF32, UINT64_MAX); }, kInvalid,
     "is its place"},
    {"OffsetNotAligned", [] { return OneTensor({4}, kGgufF32, 4); }, kInvalid, "is its place"},
    {"DataBeyondTheFile", [] { return OneTensor({1000}, kGgufF32, 0); }, kLost,
     "is cut off: it ends at byte 128, and tensor t begins at byte 64 and takes 4000"},
    {"TensorsOverlap",
     [] {
       return Changed([](GgufWriter& w) {
         w.Tensor("a", {16}, kGgufF32, std::string(64, 'a'));
         w.TensorAt("b", {8}, kGgufF32, 32);
       });
     },
     kInvalid, "tensor b lies at 32"},
    {"GapBetweenTensors",
     [] {
       return Changed([](GgufWriter& w) {
         w.Tensor("a", {16}, kGgufF32, std::string(256, 'a'));
         w.TensorAt("b", {8}, kGgufF32, 128);
       });
     },
     kInvalid, "tensor b lies at 128"},
    {"RepeatedTensor",
     [] {
       return Changed([](GgufWriter& w) {
         w.Tensor("a", {8}, kGgufF32, std::string(32, 'a'));
         w.Tensor("a", {8}, kGgufF32, std::string(32, 'a'));
       });
     },
     kInvalid, "tensor a occurs twice"},
    {"TensorNameTooLong",
     [] {
       return Changed(
           [](GgufWriter& w) { w.Tensor(std::string(600, 'n'), {1}, kGgufF32, "1234"); });
     },
     kInvalid, "bytes of a string"},
};

INSTANTIATE_TEST_SUITE_P(All, MalformedGgufTest, ::testing::ValuesIn(kMalformed),
                         [](const auto& instance) { return std::string(instance.param.name); });

}  // namespace
}  // namespace nightshift
