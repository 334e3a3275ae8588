#include "engine/model/safetensors_header.h"

#include <optional>
#include <utility>

#include <nlohmann/json.hpp>

#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"

#include "kernels/base/checked_math.h"

namespace nightshift {
namespace {

using Json = nlohmann::json;

std::optional<DType> FloatTypeNamed(const std::string& name) {
  if (name == "F32") {
    return DType::kF32;
  }
  if (name == "F16") {
    return DType::kF16;
  }
  if (name == "BF16") {
    return DType::kBF16;
  }
  return std::nullopt;
}

// Published GPT-NeoX files hold each layer's causal mask, one byte an element.
bool IsMask(const std::string& name, const std::string& type) {
  return (type == "BOOL" || type == "U8") && absl::EndsWith(name, ".attention.bias");
}

// Receives the header piece by piece. Every handler returns false at the first problem, which ends
// the parse.
class HeaderHandler : public nlohmann::json_sax<Json> {
 public:
  explicit HeaderHandler(int64_t data_bytes) : data_bytes_(data_bytes) {}

  bool null() override { return Unexpected("null"); }
  bool boolean(bool) override { return Unexpected("a boolean"); }
  bool number_float(number_float_t, const string_t&) override { return Unexpected("a fraction"); }
  bool number_integer(number_integer_t) override { return Unexpected("a negative number"); }
  bool binary(binary_t&) override { return Unexpected("binary data"); }
  bool number_unsigned(number_unsigned_t value) override;
  bool string(string_t& value) override;
  bool start_object(std::size_t) override;
  bool key(string_t& name) override;
  bool end_object() override;
  bool start_array(std::size_t) override;
  bool end_array() override;
  bool parse_error(std::size_t position, const std::string&,
                   const nlohmann::detail::exception&) override {
    return Problem(absl::StrCat("not JSON at byte ", position, " of the header"));
  }

  const std::string& problem() const { return problem_; }
  std::vector<SourceTensor> TakeTensors() { return std::move(tensors_); }

 private:
  enum class Place : uint8_t { kStart, kRoot, kMetadata, kTensor, kShape, kOffsets, kEnd };

  bool Problem(const std::string& text) {
    if (problem_.empty()) {
      problem_ = place_ == Place::kRoot || tensor_.name.empty()
                     ? text
                     : absl::StrCat("tensor ", tensor_.name, ": ", text);
    }
    return false;
  }
  bool Unexpected(const char* found) { return Problem(absl::StrCat(found, " where none belongs")); }
  bool FinishTensor();

  const int64_t data_bytes_;
  Place place_ = Place::kStart;
  SourceTensor tensor_;
  std::string field_;
  bool has_type_ = false;
  bool has_shape_ = false;
  std::vector<int64_t> offsets_;
  std::vector<SourceTensor> tensors_;
  std::string problem_;
};

bool HeaderHandler::number_unsigned(number_unsigned_t value) {
  const std::optional<int64_t> number = CheckedSigned(value);
  if (place_ == Place::kShape) {
    if (!number || *number == 0 || tensor_.shape.size() == kMaxSourceDimensions) {
      return Problem(absl::StrCat("a shape has at most ", kMaxSourceDimensions,
                                  " dimensions from 1 to 2^63 - 1"));
    }
    tensor_.shape.push_back(*number);
    return true;
  }
  if (place_ == Place::kOffsets) {
    if (!number || offsets_.size() == 2) {
      return Problem("data_offsets are two numbers below 2^63");
    }
    offsets_.push_back(*number);
    return true;
  }
  return Unexpected("a number");
}

bool HeaderHandler::string(string_t& value) {
  if (place_ == Place::kMetadata) {
    return true;
  }
  if (place_ != Place::kTensor || field_ != "dtype") {
    return Unexpected("a string");
  }
  const std::optional<DType> type = FloatTypeNamed(value);
  tensor_.is_mask = IsMask(tensor_.name, value);
  if (!type && !tensor_.is_mask) {
    return Problem(absl::StrCat("type ", value.substr(0, 32), " is not one of F32, F16, BF16"));
  }
  tensor_.dtype = type.value_or(DType::kF32);
  has_type_ = true;
  return true;
}

bool HeaderHandler::start_object(std::size_t) {
  if (place_ == Place::kStart) {
    place_ = Place::kRoot;
    return true;
  }
  if (place_ != Place::kRoot) {
    return Unexpected("an object");
  }
  place_ = tensor_.name == "__metadata__" ? Place::kMetadata : Place::kTensor;
  return true;
}

bool HeaderHandler::key(string_t& name) {
  if (place_ == Place::kRoot) {
    if (name.empty() || name.size() > kMaxSourceNameBytes) {
      return Problem(absl::StrCat("a tensor name of ", name.size(), " bytes; 1 to ",
                                  kMaxSourceNameBytes, " are taken"));
    }
    if (tensors_.size() == static_cast<size_t>(kMaxSourceTensors)) {
      return Problem(absl::StrCat("more than ", kMaxSourceTensors, " tensors"));
    }
    tensor_ = SourceTensor{};
    tensor_.name = name;
    has_type_ = has_shape_ = false;
    offsets_.clear();
    return true;
  }
  if (place_ == Place::kMetadata) {
    return true;
  }
  const bool repeated = (name == "dtype" && has_type_) || (name == "shape" && has_shape_) ||
                        (name == "data_offsets" && !offsets_.empty());
  if (repeated || (name != "dtype" && name != "shape" && name != "data_offsets")) {
    return Problem("fields other than one dtype, one shape and one data_offsets");
  }
  field_ = name;
  return true;
}

bool HeaderHandler::start_array(std::size_t) {
  if (place_ == Place::kTensor && field_ == "shape") {
    place_ = Place::kShape;
    return true;
  }
  if (place_ == Place::kTensor && field_ == "data_offsets") {
    place_ = Place::kOffsets;
    return true;
  }
  return Unexpected("an array");
}

bool HeaderHandler::end_array() {
  has_shape_ = has_shape_ || place_ == Place::kShape;
  place_ = Place::kTensor;
  return true;
}

bool HeaderHandler::end_object() {
  switch (place_) {
    case Place::kMetadata:
      place_ = Place::kRoot;
      return true;
    case Place::kTensor:
      if (!FinishTensor()) {
        return false;
      }
      place_ = Place::kRoot;
      return true;
    default:
      place_ = Place::kEnd;
      return true;
  }
}

bool HeaderHandler::FinishTensor() {
  if (!has_type_ || !has_shape_ || offsets_.size() != 2) {
    return Problem("dtype, shape or data_offsets is missing");
  }
  if (tensor_.shape.empty()) {
    tensor_.shape.push_back(1);  // A scalar.
  }
  tensor_.rows = 1;
  const std::optional<int64_t> row_bytes =
      CheckedMultiply({tensor_.shape.back(), tensor_.is_mask ? 1 : FloatBytes(tensor_.dtype)});
  std::optional<int64_t> bytes = row_bytes;
  for (size_t i = 0; bytes && i + 1 < tensor_.shape.size(); ++i) {
    bytes = CheckedMultiply({*bytes, tensor_.shape[i]});
    tensor_.rows = bytes ? tensor_.rows * tensor_.shape[i] : 0;  // Never above `bytes`.
  }
  if (!bytes) {
    return Problem("the product of its shape does not fit in 63 bits");
  }
  const int64_t begin = offsets_[0];
  const int64_t end = offsets_[1];
  if (begin > end || end > data_bytes_) {
    return Problem(absl::StrCat("bytes ", begin, " to ", end, " of a file that holds ", data_bytes_,
                                " after its header"));
  }
  if (end - begin != *bytes) {
    return Problem(
        absl::StrCat("shape and type make ", *bytes, " bytes, data_offsets hold ", end - begin));
  }
  tensor_.row_bytes = *row_bytes;
  tensor_.offset = begin;
  tensors_.push_back(std::move(tensor_));
  tensor_ = SourceTensor{};
  return true;
}

}  // namespace

absl::StatusOr<std::vector<SourceTensor>> ParseSafetensorsHeader(const std::string& text,
                                                                 int64_t data_bytes,
                                                                 const std::string& what) {
  HeaderHandler handler(data_bytes);
  if (!Json::sax_parse(text, &handler)) {
    return absl::InvalidArgumentError(absl::StrCat(what, ": ", handler.problem()));
  }
  return handler.TakeTensors();
}

}  // namespace nightshift
