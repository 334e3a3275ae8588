// Reads the golden files of tests/data (format "oracle/1", tests/data/make_oracles.py).
#pragma once

#include <cstdint>
#include <cstring>
#include <fstream>
#include <iterator>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>

namespace nightshift {

inline std::string ReadWholeFile(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

// The `cases` of a golden JSON file.
inline nlohmann::json GoldenCases(const std::string& path) {
  const nlohmann::json document = nlohmann::json::parse(ReadWholeFile(path), nullptr, false);
  return document.is_object() ? document.value("cases", nlohmann::json::array())
                              : nlohmann::json::array();
}

// All tensors of a golden safetensors file, every one F32 and row-major.
inline std::map<std::string, std::vector<float>> GoldenTensors(const std::string& path) {
  std::map<std::string, std::vector<float>> tensors;
  const std::string bytes = ReadWholeFile(path);
  uint64_t header_bytes = 0;
  std::memcpy(&header_bytes, bytes.data(), sizeof(header_bytes));
  const nlohmann::json header = nlohmann::json::parse(bytes.substr(8, header_bytes));
  for (const auto& [name, entry] : header.items()) {
    if (name == "__metadata__") {
      continue;
    }
    const size_t first = entry["data_offsets"][0].get<size_t>();
    const size_t last = entry["data_offsets"][1].get<size_t>();
    std::vector<float> values((last - first) / sizeof(float));
    std::memcpy(values.data(), bytes.data() + 8 + header_bytes + first, last - first);
    tensors[name] = std::move(values);
  }
  return tensors;
}

}  // namespace nightshift
