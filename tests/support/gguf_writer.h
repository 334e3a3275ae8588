// A small writer of GGUF files for tests, written from the format's description.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "tests/support/file_bytes.h"

namespace nightshift {

inline constexpr uint32_t kGgufF32 = 0;
inline constexpr uint32_t kGgufF16 = 1;
inline constexpr uint32_t kGgufQ4_0 = 2;
inline constexpr uint32_t kGgufQ4_1 = 3;
inline constexpr uint32_t kGgufQ8_0 = 8;

inline std::string GgufText(const std::string& text) {
  std::string bytes;
  AppendNumber(bytes, static_cast<uint64_t>(text.size()));
  return bytes + text;
}

// Collects keys and tensors. Fields that a test wants wrong are public.
class GgufWriter {
 public:
  uint32_t magic = 0x46554747;
  uint32_t version = 3;
  int64_t extra_keys = 0;  // added to the counts that the file states
  int64_t extra_tensors = 0;
  int64_t alignment = 32;  // of the layout; say so by Integer("general.alignment", ...)

  void Integer(const std::string& key, uint32_t value) {
    std::string bytes;
    AppendNumber(bytes, value);
    Raw(key, 4, bytes);
  }
  void Number(const std::string& key, float value) {
    std::string bytes;
    AppendNumber(bytes, value);
    Raw(key, 6, bytes);
  }
  void Bool(const std::string& key, bool value) { Raw(key, 7, std::string(1, value ? 1 : 0)); }
  void Text(const std::string& key, const std::string& value) { Raw(key, 8, GgufText(value)); }
  void Texts(const std::string& key, const std::vector<std::string>& values) {
    std::string bytes;
    for (const std::string& value : values) {
      bytes += GgufText(value);
    }
    Array(key, 8, values.size(), bytes);
  }
  void Integers(const std::string& key, const std::vector<int32_t>& values) {
    std::string bytes;
    for (const int32_t value : values) {
      AppendNumber(bytes, value);
    }
    Array(key, 5, values.size(), bytes);
  }
  // An array whose header says whatever the caller likes.
  void Array(const std::string& key, uint32_t element_type, uint64_t count,
             const std::string& elements) {
    std::string bytes;
    AppendNumber(bytes, element_type);
    AppendNumber(bytes, count);
    Raw(key, 9, bytes + elements);
  }
  void Raw(const std::string& key, uint32_t type, const std::string& value) {
    keys_ += GgufText(key);
    AppendNumber(keys_, type);
    keys_ += value;
    ++num_keys_;
  }

  // `dimensions` fastest first, as in the file.
  void Tensor(const std::string& name, const std::vector<uint64_t>& dimensions, uint32_t type,
              const std::string& data) {
    TensorAt(name, dimensions, type, data_.size());
    data_ += data;
    data_.resize((data_.size() + static_cast<size_t>(alignment) - 1) /
                 static_cast<size_t>(alignment) * static_cast<size_t>(alignment));
  }
  // Only the record, with any offset.
  void TensorAt(const std::string& name, const std::vector<uint64_t>& dimensions, uint32_t type,
                uint64_t offset) {
    tensors_ += GgufText(name);
    AppendNumber(tensors_, static_cast<uint32_t>(dimensions.size()));
    for (const uint64_t size : dimensions) {
      AppendNumber(tensors_, size);
    }
    AppendNumber(tensors_, type);
    AppendNumber(tensors_, offset);
    ++num_tensors_;
  }

  // Everything before the data, without its padding.
  std::string head() const {
    std::string bytes;
    AppendNumber(bytes, magic);
    AppendNumber(bytes, version);
    AppendNumber(bytes, static_cast<uint64_t>(num_tensors_ + extra_tensors));
    AppendNumber(bytes, static_cast<uint64_t>(num_keys_ + extra_keys));
    return bytes + keys_ + tensors_;
  }
  std::string bytes() const {
    std::string bytes = head();
    const size_t unit = static_cast<size_t>(alignment);
    bytes.resize((bytes.size() + unit - 1) / unit * unit);
    return bytes + data_;
  }

 private:
  std::string keys_;
  std::string tensors_;
  std::string data_;
  int64_t num_keys_ = 0;
  int64_t num_tensors_ = 0;
};

}  // namespace nightshift
