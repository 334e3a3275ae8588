// A small writer of safetensors files for tests, written from the format's description.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "tests/support/file_bytes.h"

namespace nightshift {

// Header length, header, data: for headers that are broken on purpose too.
inline std::string SafetensorsBytes(const std::string& header, const std::string& data) {
  std::string bytes;
  AppendNumber(bytes, static_cast<uint64_t>(header.size()));
  return bytes + header + data;
}

// Collects tensors and lays them out one after another.
class SafetensorsWriter {
 public:
  // `type` is "F32", "F16" or "BF16"; `data` holds the elements as they lie in the file.
  void Add(const std::string& name, const std::string& type, const std::vector<int64_t>& shape,
           const std::string& data) {
    std::string sizes;
    for (const int64_t size : shape) {
      sizes += (sizes.empty() ? "" : ",") + std::to_string(size);
    }
    header_ += (header_.empty() ? "" : ",") + ("\"" + name + "\":{\"dtype\":\"" + type) +
               "\",\"shape\":[" + sizes + "],\"data_offsets\":[" + std::to_string(data_.size()) +
               "," + std::to_string(data_.size() + data.size()) + "]}";
    data_ += data;
  }
  std::string bytes() const { return SafetensorsBytes("{" + header_ + "}", data_); }

 private:
  std::string header_;
  std::string data_;
};

}  // namespace nightshift
