// GgufKeys: metadata of a GGUF file whose keys begin with the architecture's name.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"

#include "engine/model/gguf.h"
#include "engine/model/strict_json.h"

namespace nightshift {

// Keeps the first problem, as JsonReader does. The checkpoint must outlive it.
class GgufKeys {
 public:
  GgufKeys(const GgufCheckpoint& checkpoint, std::string architecture)
      : checkpoint_(checkpoint),
        reader_(checkpoint.metadata().scalars, "GGUF metadata"),
        architecture_(std::move(architecture)) {}

  int64_t Required(const char* key) {
    return reader_.RequiredInteger(Full(key).c_str(), 1, INT64_MAX);
  }
  int64_t Integer(const char* key, int64_t fallback) {
    return reader_.Integer(Full(key).c_str(), 0, INT64_MAX, fallback);
  }
  double Number(const char* key, double fallback) {
    return reader_.Number(Full(key).c_str(), 0.0, kAnyNumber, fallback);
  }
  // Above 0 wherever it is there.
  double Positive(const char* key, double fallback) {
    const double value = Number(key, fallback);
    if (Has(key) && !(static_cast<float>(value) > 0.0F)) {
      Refuse(key, "is not above 0");
    }
    return value;
  }
  double RequiredNumber(const char* key) {
    return reader_.RequiredNumber(Full(key).c_str(), 0.0, kAnyNumber);
  }
  bool Bool(const char* key, bool fallback) { return reader_.Bool(Full(key).c_str(), fallback); }
  std::string Text(const char* key, const std::string& fallback) {
    return reader_.Text(Full(key).c_str(), fallback);
  }
  // Array of integers or booleans; nullptr if there is none.
  const std::vector<int64_t>* Integers(const char* key) const {
    const auto& arrays = checkpoint_.metadata().integer_arrays;
    const auto array = arrays.find(Full(key));
    return array == arrays.end() ? nullptr : &array->second;
  }
  bool Has(const char* key) const { return reader_.Has(Full(key).c_str()); }
  void Refuse(const char* key, const std::string& problem) {
    reader_.Refuse(Full(key).c_str(), problem);
  }
  bool HasTensor(const std::string& name) const { return checkpoint_.Find(name) != nullptr; }
  // For keys that belong to no architecture.
  JsonReader& plain() { return reader_; }

 private:
  static constexpr double kAnyNumber = 1e30;

  std::string Full(const char* key) const { return absl::StrCat(architecture_, ".", key); }

  const GgufCheckpoint& checkpoint_;
  JsonReader reader_;
  std::string architecture_;
};

}  // namespace nightshift
