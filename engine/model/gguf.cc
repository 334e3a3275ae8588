#include "engine/model/gguf.h"

#include <algorithm>
#include <optional>
#include <set>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"

#include "engine/model/gguf_cursor.h"
#include "engine/model/gguf_types.h"
#include "engine/model/strict_json.h"
#include "kernels/base/checked_math.h"
#include "kernels/base/status_macros.h"

namespace nightshift {
namespace {

constexpr uint32_t kMagic = 0x46554747;  // "GGUF"
constexpr int64_t kMaxKeys = 100'000;
constexpr int64_t kMaxKeyBytes = 65'535;
constexpr int64_t kMaxTextBytes = 16 << 20;
// All array elements together: four times the largest vocabulary with its merges and scores.
constexpr int64_t kMaxArrayElements = 8 << 20;
constexpr int64_t kMaxDimensions = 4;
constexpr int64_t kDefaultAlignment = 32;
constexpr int64_t kMaxAlignment = 1 << 20;
constexpr char kAlignmentKey[] = "general.alignment";
// The least that a key with its value, and a tensor's record, take.
constexpr int64_t kMinKeyBytes = 8 + 1 + 4 + 1;
constexpr int64_t kMinTensorBytes = 8 + 1 + 4 + 8 + 4 + 8;

enum class ValueType : uint32_t {
  kUint8 = 0,
  kInt8 = 1,
  kUint16 = 2,
  kInt16 = 3,
  kUint32 = 4,
  kInt32 = 5,
  kFloat32 = 6,
  kBool = 7,
  kString = 8,
  kArray = 9,
  kUint64 = 10,
  kInt64 = 11,
  kFloat64 = 12,
};

// Bytes of a value in the file, at least; nothing for numbers that are no type.
std::optional<int64_t> MinValueBytes(ValueType type) {
  switch (type) {
    case ValueType::kUint8:
    case ValueType::kInt8:
    case ValueType::kBool:
      return 1;
    case ValueType::kUint16:
    case ValueType::kInt16:
      return 2;
    case ValueType::kUint32:
    case ValueType::kInt32:
    case ValueType::kFloat32:
      return 4;
    case ValueType::kString:
    case ValueType::kUint64:
    case ValueType::kInt64:
    case ValueType::kFloat64:
      return 8;
    case ValueType::kArray:
      return 4 + 8;
  }
  return std::nullopt;
}

int64_t ReadInteger(GgufCursor& cursor, ValueType type) {
  switch (type) {
    case ValueType::kUint8:
    case ValueType::kBool:
      return cursor.Number<uint8_t>();
    case ValueType::kInt8:
      return cursor.Number<int8_t>();
    case ValueType::kUint16:
      return cursor.Number<uint16_t>();
    case ValueType::kInt16:
      return cursor.Number<int16_t>();
    case ValueType::kUint32:
      return cursor.Number<uint32_t>();
    case ValueType::kInt32:
      return cursor.Number<int32_t>();
    case ValueType::kUint64: {
      const std::optional<int64_t> value = CheckedSigned(cursor.Number<uint64_t>());
      if (!value) {
        cursor.Refuse("a number above 2^63 - 1");
      }
      return value.value_or(0);
    }
    default:
      return cursor.Number<int64_t>();
  }
}

double ReadNumber(GgufCursor& cursor, ValueType type) {
  return type == ValueType::kFloat32 ? static_cast<double>(cursor.Number<float>())
                                     : cursor.Number<double>();
}

bool IsNumber(ValueType type) {
  return type == ValueType::kFloat32 || type == ValueType::kFloat64;
}

// Reads the key-value part.
class MetadataReader {
 public:
  explicit MetadataReader(GgufCursor& cursor) : cursor_(cursor) {}

  GgufMetadata Read(int64_t num_keys) {
    for (int64_t i = 0; i < num_keys && cursor_.ok(); ++i) {
      const std::string key = cursor_.Text(kMaxKeyBytes);
      if (cursor_.ok() && (key.empty() || !keys_.insert(key).second)) {
        cursor_.Refuse(absl::StrCat("key ", key.substr(0, 128), " is empty or occurs twice"));
      }
      ReadValue(key, static_cast<ValueType>(cursor_.Number<uint32_t>()));
    }
    return std::move(metadata_);
  }

 private:
  void ReadValue(const std::string& key, ValueType type) {
    if (!MinValueBytes(type)) {
      cursor_.Refuse(absl::StrCat("key ", key.substr(0, 128), " has the unknown type ",
                                  static_cast<uint32_t>(type)));
    } else if (type == ValueType::kArray) {
      ReadArray(key);
    } else if (type == ValueType::kString) {
      metadata_.scalars[key] = cursor_.Text(kMaxTextBytes);
    } else if (type == ValueType::kBool) {
      metadata_.scalars[key] = cursor_.Number<uint8_t>() != 0;
    } else if (IsNumber(type)) {
      metadata_.scalars[key] = ReadNumber(cursor_, type);
    } else {
      metadata_.scalars[key] = ReadInteger(cursor_, type);
    }
  }

  void ReadArray(const std::string& key) {
    const ValueType type = static_cast<ValueType>(cursor_.Number<uint32_t>());
    const std::optional<int64_t> element_bytes = MinValueBytes(type);
    if (!element_bytes || type == ValueType::kArray) {
      cursor_.Refuse(absl::StrCat("key ", key.substr(0, 128), " is an array of type ",
                                  static_cast<uint32_t>(type), ": unknown, or an array of arrays"));
      return;
    }
    const int64_t count =
        cursor_.Count(*element_bytes, kMaxArrayElements - array_elements_, "array elements");
    array_elements_ += count;
    for (int64_t i = 0; i < count && cursor_.ok(); ++i) {
      if (type == ValueType::kString) {
        metadata_.string_arrays[key].push_back(cursor_.Text(kMaxTextBytes));
      } else if (IsNumber(type)) {
        metadata_.number_arrays[key].push_back(ReadNumber(cursor_, type));
      } else {
        metadata_.integer_arrays[key].push_back(ReadInteger(cursor_, type));
      }
    }
  }

  GgufCursor& cursor_;
  GgufMetadata metadata_;
  std::set<std::string> keys_;
  int64_t array_elements_ = 0;
};

// Fills rows and row_bytes from the shape, whose rows are whole blocks. False when they overflow.
bool FillSizes(const GgufType& type, SourceTensor& tensor) {
  std::optional<int64_t> bytes = CheckedMultiply({tensor.shape.back() / type.values, type.bytes});
  tensor.row_bytes = bytes.value_or(0);
  tensor.rows = 1;
  for (size_t i = 0; bytes && i + 1 < tensor.shape.size(); ++i) {
    bytes = CheckedMultiply({*bytes, tensor.shape[i]});
    tensor.rows = bytes ? tensor.rows * tensor.shape[i] : 0;  // Never above `bytes`.
  }
  return bytes.has_value();
}

// Takes over the type with this number in the file.
void FillType(uint32_t number, GgufCursor& cursor, SourceTensor& tensor) {
  const GgufType* const type = FindGgufType(number);
  if (type == nullptr) {
    cursor.Refuse(absl::StrCat("tensor ", tensor.name, " has the type ", GgufTypeName(number),
                               "; supported: ", SupportedGgufTypes()));
    return;
  }
  tensor.dtype = type->stored;
  tensor.blocks = type->is_float() ? nullptr : type;
  if (!cursor.ok()) {
    return;
  }
  if (tensor.shape.back() % type->values != 0) {
    cursor.Refuse(absl::StrCat("tensor ", tensor.name, " has rows of ", tensor.shape.back(),
                               " values, which do not fill ", type->name, "'s blocks of ",
                               type->values));
  } else if (!FillSizes(*type, tensor)) {
    cursor.Refuse(absl::StrCat("tensor ", tensor.name, " has a shape that overflows"));
  }
}

// One record of the tensor table; its offset is relative to the data.
SourceTensor ReadTensorRecord(GgufCursor& cursor) {
  SourceTensor tensor;
  tensor.name = cursor.Text(kMaxSourceNameBytes);
  const uint32_t num_dimensions = cursor.Number<uint32_t>();
  if (num_dimensions < 1 || num_dimensions > kMaxDimensions) {
    cursor.Refuse(absl::StrCat("tensor ", tensor.name, " has ", num_dimensions,
                               " dimensions, 1 to ", kMaxDimensions, " are possible"));
  }
  for (uint32_t i = 0; i < num_dimensions && cursor.ok(); ++i) {
    const std::optional<int64_t> size = CheckedSigned(cursor.Number<uint64_t>());
    if (!size || *size < 1) {
      cursor.Refuse(absl::StrCat("tensor ", tensor.name, " has a dimension of no size"));
    }
    tensor.shape.insert(tensor.shape.begin(), size.value_or(1));
  }
  const uint32_t type = cursor.Number<uint32_t>();
  tensor.offset = CheckedSigned(cursor.Number<uint64_t>()).value_or(-1);
  FillType(type, cursor, tensor);
  return tensor;
}

int64_t ReadAlignment(const GgufMetadata& metadata, GgufCursor& cursor) {
  JsonReader reader(metadata.scalars, "metadata");
  const int64_t alignment = reader.Integer(kAlignmentKey, 1, kMaxAlignment, kDefaultAlignment);
  if (!reader.status().ok() || (alignment & (alignment - 1)) != 0) {
    cursor.Refuse(absl::StrCat(kAlignmentKey, " is not a power of two up to ", kMaxAlignment));
    return kDefaultAlignment;
  }
  return alignment;
}

// Tensors lie one after another in the order of the table, each at the next aligned offset.
absl::Status PlaceTensors(std::vector<SourceTensor>& tensors, int64_t data_begin, int64_t alignment,
                          const SourceFile& file) {
  const int64_t data_bytes = file.bytes() - data_begin;
  int64_t next = 0;
  for (SourceTensor& tensor : tensors) {
    const int64_t bytes = tensor.rows * tensor.row_bytes;
    if (tensor.offset == next && bytes > data_bytes - next) {
      return absl::DataLossError(absl::StrCat(
          file.path(), " is cut off: it ends at byte ", file.bytes(), ", and tensor ", tensor.name,
          " begins at byte ", data_begin + next, " and takes ", bytes, "; fetch the file again"));
    }
    if (tensor.offset != next) {
      return absl::InvalidArgumentError(
          absl::StrCat(file.path(), ": tensor ", tensor.name, " lies at ", tensor.offset, " + ",
                       bytes, " of ", data_bytes, " bytes of data; ", next, " is its place"));
    }
    // No overflow: the end is inside the file.
    next = std::min(CheckedRoundUp(next + bytes, alignment).value_or(data_bytes),
                    std::max(data_bytes, int64_t{0}));
    tensor.offset += data_begin;
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::unique_ptr<GgufCheckpoint>> GgufCheckpoint::Open(const std::string& path) {
  ASSIGN_OR_RETURN(SourceFile file, SourceFile::Open(path));
  GgufCursor cursor(file);
  const uint32_t magic = cursor.Number<uint32_t>();
  const uint32_t version = cursor.Number<uint32_t>();
  if (magic != kMagic || version < 2 || version > 3) {
    cursor.Refuse(magic != kMagic ? "not a GGUF file"
                                  : absl::StrCat("GGUF version ", version,
                                                 "; 2 and 3 in little-endian order are supported"));
  }
  const int64_t num_tensors = cursor.Count(kMinTensorBytes, kMaxSourceTensors, "tensors");
  const int64_t num_keys = cursor.Count(kMinKeyBytes, kMaxKeys, "keys");
  GgufMetadata metadata = MetadataReader(cursor).Read(num_keys);
  const int64_t alignment = ReadAlignment(metadata, cursor);
  std::vector<SourceTensor> tensors;
  std::set<std::string> names;
  for (int64_t i = 0; i < num_tensors && cursor.ok(); ++i) {
    tensors.push_back(ReadTensorRecord(cursor));
    if (!names.insert(tensors.back().name).second) {
      cursor.Refuse(absl::StrCat("tensor ", tensors.back().name, " occurs twice"));
    }
  }
  RETURN_IF_ERROR(cursor.status());
  const int64_t data_begin = *CheckedRoundUp(cursor.position(), alignment);
  RETURN_IF_ERROR(PlaceTensors(tensors, data_begin, alignment, file));
  return std::make_unique<GgufCheckpoint>(std::move(file), std::move(metadata), std::move(tensors));
}

GgufCheckpoint::GgufCheckpoint(SourceFile file, GgufMetadata metadata,
                               std::vector<SourceTensor> tensors)
    : file_(std::move(file)), metadata_(std::move(metadata)), tensors_(std::move(tensors)) {}

const SourceTensor* GgufCheckpoint::Find(const std::string& name) const {
  for (const SourceTensor& tensor : tensors_) {
    if (tensor.name == name) {
      return &tensor;
    }
  }
  return nullptr;
}

absl::Status GgufCheckpoint::ReadRows(const SourceTensor& tensor, int64_t first_row,
                                      std::span<std::byte> target) const {
  return file_.Read(tensor.offset + first_row * tensor.row_bytes, target);
}

}  // namespace nightshift
