// Reading of the golden files in tests/data.
#pragma once

#include <fstream>
#include <iterator>
#include <string>

#include <nlohmann/json.hpp>

namespace nightshift {

// The bytes of a file below tests/data; empty if it is not there.
inline std::string ReadDataFile(const std::string& path) {
  std::ifstream file(std::string(TEST_DATA_DIR) + "/" + path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

inline nlohmann::json ReadDataJson(const std::string& path) {
  return nlohmann::json::parse(ReadDataFile(path), nullptr, false);
}

// The same with the names of objects in the file's order.
inline nlohmann::ordered_json ReadDataOrderedJson(const std::string& path) {
  return nlohmann::ordered_json::parse(ReadDataFile(path), nullptr, false);
}

}  // namespace nightshift
