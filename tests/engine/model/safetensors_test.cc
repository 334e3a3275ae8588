#include "engine/model/safetensors.h"

#include <filesystem>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "tests/support/safetensors_writer.h"
#include "tests/support/status_matchers.h"
#include "tests/support/temporary_folder.h"

namespace nightshift {
namespace {

constexpr absl::StatusCode kInvalid = absl::StatusCode::kInvalidArgument;
constexpr absl::StatusCode kLost = absl::StatusCode::kDataLoss;

class SafetensorsTest : public ::testing::Test {
 protected:
  void Write(const std::string& name, const std::string& bytes) {
    WriteFileBytes(folder_.path() + "/" + name, bytes);
  }
  absl::StatusOr<std::unique_ptr<SafetensorsCheckpoint>> Open() {
    return SafetensorsCheckpoint::Open(folder_.path());
  }
  absl::StatusOr<std::unique_ptr<SafetensorsCheckpoint>> OpenBytes(const std::string& bytes) {
    Write("model.safetensors", bytes);
    return Open();
  }

  TemporaryFolder folder_;
};

TEST_F(SafetensorsTest, ReadsTensorsWhateverTheOrderOfTheHeader) {
  ASSERT_OK_AND_ASSIGN(
      const auto checkpoint,
      OpenBytes(SafetensorsBytes(
          R"({"b":{"data_offsets":[4,12],"shape":[2,1],"dtype":"F32"},"__metadata__":{"format":"pt"},)"
          R"("a":{"dtype":"BF16","shape":[2],"data_offsets":[0,4]}}   )",
          "aaaabbbbcccc")));
  ASSERT_EQ(checkpoint->tensors().size(), 2U);
  const SourceTensor& b = checkpoint->tensors()[1];
  EXPECT_EQ(b.name, "b");
  EXPECT_EQ(b.rows, 2);
  std::string row(4, ' ');
  ASSERT_OK(checkpoint->ReadRows(b, 1, std::as_writable_bytes(std::span(row))));
  EXPECT_EQ(row, "cccc");
}

TEST_F(SafetensorsTest, CausalMasksOfBytesAreKnownForWhatTheyAre) {
  SafetensorsWriter writer;
  writer.Add("gpt_neox.layers.0.attention.bias", "BOOL", {1, 1, 2, 2}, "abcd");
  writer.Add("a", "F32", {1}, "aaaa");
  ASSERT_OK_AND_ASSIGN(auto checkpoint, OpenBytes(writer.bytes()));
  ASSERT_EQ(checkpoint->tensors().size(), 2U);
  EXPECT_TRUE(checkpoint->tensors()[0].is_mask);
  EXPECT_FALSE(checkpoint->tensors()[1].is_mask);
  SafetensorsWriter other;
  other.Add("gpt_neox.layers.0.attention.dense.bias", "U8", {4}, "abcd");
  EXPECT_THAT(OpenBytes(other.bytes()), StatusIs(kInvalid, "type U8 is not one of"));
}

TEST_F(SafetensorsTest, ReadsTheFilesThatAnIndexNames) {
  SafetensorsWriter one;
  one.Add("a", "F16", {2}, "aaaa");
  SafetensorsWriter two;
  two.Add("b", "F16", {1, 2}, "bbbb");
  Write("1.safetensors", one.bytes());
  Write("2.safetensors", two.bytes());
  Write("model.safetensors.index.json",
        R"({"weight_map":{"a":"1.safetensors","b":"2.safetensors"}})");
  ASSERT_OK_AND_ASSIGN(const auto checkpoint, Open());
  ASSERT_EQ(checkpoint->tensors().size(), 2U);
  std::string row(4, ' ');
  ASSERT_OK(
      checkpoint->ReadRows(checkpoint->tensors()[1], 0, std::as_writable_bytes(std::span(row))));
  EXPECT_EQ(row, "bbbb");
}

TEST_F(SafetensorsTest, FolderWithoutCheckpointIsNotFound) {
  EXPECT_THAT(Open(), StatusIs(absl::StatusCode::kNotFound, "model.safetensors"));
}

TEST_F(SafetensorsTest, EveryTruncationIsRefused) {
  SafetensorsWriter writer;
  writer.Add("a", "F32", {2, 2}, std::string(16, 'a'));
  writer.Add("b", "BF16", {3}, std::string(6, 'b'));
  const std::string bytes = writer.bytes();
  ASSERT_OK(OpenBytes(bytes));
  for (size_t length = bytes.size(); length-- > 0;) {
    std::filesystem::resize_file(folder_.path() + "/model.safetensors", length);
    ASSERT_FALSE(Open().ok()) << length;
  }
}

TEST_F(SafetensorsTest, BytesBehindTheLastTensorAreRefused) {
  SafetensorsWriter writer;
  writer.Add("a", "F32", {1}, "aaaa");
  EXPECT_THAT(OpenBytes(writer.bytes() + "x"), StatusIs(kInvalid, "cover 4 of the 5 bytes"));
}

struct HeaderCase {
  const char* name;
  const char* header;  // 16 bytes of data follow
  const char* message;
};

class MalformedHeaderTest : public SafetensorsTest,
                            public ::testing::WithParamInterface<HeaderCase> {};

TEST_P(MalformedHeaderTest, IsRefused) {
  EXPECT_THAT(OpenBytes(SafetensorsBytes(GetParam().header, std::string(16, 'd'))),
              StatusIs(kInvalid, GetParam().message));
}

const HeaderCase kHeaders[] = {
    {"NotJson", "{\"a\":", "not JSON"},
    {"Array", "[1]", "an array where none belongs"},
    {"Scalar", "77", "a number where none belongs"},
    {"TensorIsText", R"({"a":"b"})", "a string where none belongs"},
    {"NestedMetadata", R"({"__metadata__":{"a":{}}})", "an object where none belongs"},
    {"MetadataNumber", R"({"__metadata__":{"a":1}})", "a number where none belongs"},
    {"EmptyName", R"({"":{"dtype":"F32","shape":[4],"data_offsets":[0,16]}})", "name of 0 bytes"},
    {"MissingType", R"({"a":{"shape":[4],"data_offsets":[0,16]}})", "tensor a: dtype, shape or"},
    {"MissingShape", R"({"a":{"dtype":"F32","data_offsets":[0,16]}})", "is missing"},
    {"MissingOffsets", R"({"a":{"dtype":"F32","shape":[4]}})", "is missing"},
    {"OneOffset", R"({"a":{"dtype":"F32","shape":[4],"data_offsets":[0]}})", "is missing"},
    {"ThreeOffsets", R"({"a":{"dtype":"F32","shape":[4],"data_offsets":[0,16,16]}})",
     "data_offsets are two numbers"},
    {"UnknownField", R"({"a":{"dtype":"F32","shape":[4],"data_offsets":[0,16],"x":1}})",
     "fields other than"},
    {"RepeatedField", R"({"a":{"dtype":"F32","dtype":"F16","shape":[4],"data_offsets":[0,16]}})",
     "fields other than one dtype"},
    {"RepeatedTensor",
     R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]},)"
     R"("a":{"dtype":"F32","shape":[2],"data_offsets":[8,16]}})",
     "tensor a occurs twice"},
    {"IntegerType", R"({"a":{"dtype":"I64","shape":[2],"data_offsets":[0,16]}})",
     "type I64 is not one of F32, F16, BF16"},
    {"Float8Type", R"({"a":{"dtype":"F8_E4M3","shape":[16],"data_offsets":[0,16]}})",
     "tensor a: type F8_E4M3"},
    {"NegativeDimension", R"({"a":{"dtype":"F32","shape":[-4],"data_offsets":[0,16]}})",
     "a negative number"},
    {"ZeroDimension", R"({"a":{"dtype":"F32","shape":[0],"data_offsets":[0,0]}})",
     "dimensions from 1"},
    {"FractionalDimension", R"({"a":{"dtype":"F32","shape":[4.0],"data_offsets":[0,16]}})",
     "a fraction"},
    {"NineDimensions", R"({"a":{"dtype":"F32","shape":[1,1,1,1,1,1,1,1,4],"data_offsets":[0,16]}})",
     "at most 8 dimensions"},
    {"DimensionAbove63Bits",
     R"({"a":{"dtype":"F32","shape":[9223372036854775808],"data_offsets":[0,16]}})",
     "dimensions from 1 to 2^63 - 1"},
    {"DimensionAbove64Bits",
     R"({"a":{"dtype":"F32","shape":[18446744073709551616],"data_offsets":[0,16]}})", "a fraction"},
    {"ProductOverflows",
     R"({"a":{"dtype":"F32","shape":[4294967296,4294967296],"data_offsets":[0,16]}})",
     "does not fit in 63 bits"},
    {"TypeSizeOverflows",
     R"({"a":{"dtype":"F32","shape":[4611686018427387908],"data_offsets":[0,16]}})",
     "does not fit in 63 bits"},
    {"ShapeSmallerThanBytes", R"({"a":{"dtype":"F32","shape":[3],"data_offsets":[0,16]}})",
     "make 12 bytes, data_offsets hold 16"},
    {"OffsetsBeyondTheFile", R"({"a":{"dtype":"F32","shape":[5],"data_offsets":[0,20]}})",
     "bytes 0 to 20 of a file that holds 16"},
    {"OffsetsReversed", R"({"a":{"dtype":"F32","shape":[4],"data_offsets":[16,0]}})",
     "bytes 16 to 0"},
    {"OffsetAbove63Bits",
     R"({"a":{"dtype":"F32","shape":[4],"data_offsets":[0,18446744073709551615]}})",
     "data_offsets are two numbers below 2^63"},
    {"Overlap",
     R"({"a":{"dtype":"F32","shape":[3],"data_offsets":[0,12]},)"
     R"("b":{"dtype":"F32","shape":[2],"data_offsets":[8,16]}})",
     "tensor b begins at byte 8 of the data where 12 belongs"},
    {"Gap",
     R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]},)"
     R"("b":{"dtype":"F32","shape":[2],"data_offsets":[8,16]}})",
     "begins at byte 8 of the data where 4 belongs"},
    {"GapAtTheEnd", R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}})",
     "cover 4 of the 16 bytes"},
};

INSTANTIATE_TEST_SUITE_P(All, MalformedHeaderTest, ::testing::ValuesIn(kHeaders),
                         [](const auto& instance) { return std::string(instance.param.name); });

TEST_F(SafetensorsTest, HeaderLengthsThatCannotBeAreRefused) {
  EXPECT_THAT(OpenBytes("1234567"), StatusIs(kLost, "the file ends after 7"));
  EXPECT_THAT(OpenBytes(std::string(8, '\0')), StatusIs(kInvalid, "a header of 0 bytes"));
  EXPECT_THAT(OpenBytes(std::string(8, '\xff') + "{}"), StatusIs(kInvalid, "2 to 2 are possible"));
  std::string one_too_long;
  AppendNumber(one_too_long, uint64_t{3});
  EXPECT_THAT(OpenBytes(one_too_long + "{}"), StatusIs(kInvalid, "a header of 3 bytes"));
}

// A sparse file, so that the length is possible and only the cap stands against it.
TEST_F(SafetensorsTest, HeaderAboveTheCapIsRefusedBeforeItIsRead) {
  std::string length;
  AppendNumber(length, uint64_t{100'000'001});
  Write("model.safetensors", length);
  std::filesystem::resize_file(folder_.path() + "/model.safetensors", 200'000'000);
  EXPECT_THAT(Open(), StatusIs(kInvalid, "2 to 100000000 are possible"));
}

TEST_F(SafetensorsTest, DeepNestingIsRefused) {
  const std::string deep(100'000, '[');
  EXPECT_THAT(OpenBytes(SafetensorsBytes(R"({"a":)" + deep, "")), StatusIs(kInvalid, "an array"));
}

struct IndexCase {
  const char* name;
  const char* index;  // beside 1.safetensors, which holds the tensor "a"
  const char* message;
  absl::StatusCode code = kInvalid;
};

class MalformedIndexTest : public SafetensorsTest,
                           public ::testing::WithParamInterface<IndexCase> {};

TEST_P(MalformedIndexTest, IsRefused) {
  SafetensorsWriter writer;
  writer.Add("a", "F16", {2}, "aaaa");
  Write("1.safetensors", writer.bytes());
  Write("model.safetensors.index.json", GetParam().index);
  EXPECT_THAT(Open(), StatusIs(GetParam().code, GetParam().message));
}

const IndexCase kIndexes[] = {
    {"NotJson", "{", "not JSON"},
    {"NotAnObject", "[]", "not a JSON object"},
    {"NoMap", "{}", "weight_map"},
    {"MapIsArray", R"({"weight_map":["1.safetensors"]})", "weight_map"},
    {"MapIsEmpty", R"({"weight_map":{}})", "weight_map"},
    {"FileIsNumber", R"({"weight_map":{"a":1}})", "plain name"},
    {"AbsolutePath", R"({"weight_map":{"a":"/etc/passwd"}})", "plain name"},
    {"ParentPath", R"({"weight_map":{"a":"../1.safetensors"}})", "plain name"},
    {"SubfolderPath", R"({"weight_map":{"a":"x/1.safetensors"}})", "plain name"},
    {"BackslashPath", R"({"weight_map":{"a":"..\\1.safetensors"}})", "plain name"},
    {"DotDot", R"({"weight_map":{"a":".."}})", "plain name"},
    {"NulByte", R"({"weight_map":{"a":"1.safetensors\u0000.txt"}})", "plain name"},
    {"EmptyName", R"({"weight_map":{"a":""}})", "plain name"},
    {"RepeatedTensor", R"({"weight_map":{"a":"1.safetensors","a":"1.safetensors"}})",
     "a name occurs twice"},
    {"TensorNowhere", R"({"weight_map":{"a":"1.safetensors","b":"1.safetensors"}})",
     "names 2 tensors, its files hold 1"},
    {"TensorNotListed", R"({"weight_map":{"b":"1.safetensors"}})",
     "tensor a lies in 1.safetensors, which the index does not say"},
    {"FileMissing", R"({"weight_map":{"a":"2.safetensors"}})", "2.safetensors",
     absl::StatusCode::kNotFound},
    {"IndexNamesItself", R"({"weight_map":{"a":"model.safetensors.index.json"}})",
     "model.safetensors.index.json: a header of"},
};

INSTANTIATE_TEST_SUITE_P(All, MalformedIndexTest, ::testing::ValuesIn(kIndexes),
                         [](const auto& instance) { return std::string(instance.param.name); });

TEST_F(SafetensorsTest, TensorInTwoFilesIsRefused) {
  SafetensorsWriter writer;
  writer.Add("a", "F16", {2}, "aaaa");
  SafetensorsWriter both;
  both.Add("a", "F16", {2}, "aaaa");
  both.Add("b", "F16", {2}, "bbbb");
  Write("1.safetensors", writer.bytes());
  Write("2.safetensors", both.bytes());
  Write("model.safetensors.index.json",
        R"({"weight_map":{"a":"1.safetensors","b":"2.safetensors"}})");
  EXPECT_THAT(Open(), StatusIs(kInvalid, "tensor a occurs twice"));
}

TEST_F(SafetensorsTest, FileThatIsAFolderIsRefused) {
  std::filesystem::create_directory(folder_.path() + "/model.safetensors");
  EXPECT_THAT(Open(), StatusIs(kInvalid, "not a regular file"));
}

}  // namespace
}  // namespace nightshift
