// Values as bytes, one behind the other, for the other process of the same executable: numbers as
// they lie in memory, lists and texts behind their length.
//
// A struct is listed once, for both directions, by an overload of WalkFields that hands its fields
// to the wire. Its structured binding names every field, so a field that is added to the struct and
// not to the list does not compile.
#pragma once

#include <array>
#include <cstdint>
#include <cstring>
#include <optional>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/cord.h"
#include "absl/strings/string_view.h"

namespace nightshift {

// Which values of an enum there are: kFirst to kLast, specialised for each enum that is sent.
template <typename Enum>
struct WireEnum;

template <typename T>
concept WireNumber = std::is_arithmetic_v<T>;
template <typename T>
concept WireList = WireNumber<T> && !std::is_same_v<T, bool>;  // elements copied as one piece

// Appends values to `bytes`, which must outlive it.
class WireWriter {
 public:
  explicit WireWriter(std::string& bytes) : bytes_(bytes) {}

  template <typename... Values>
  void operator()(const Values&... values) {
    (Put(values), ...);
  }

 private:
  void Append(const void* data, size_t size) {
    bytes_.append(static_cast<const char*>(data), size);
  }

  template <typename T>
  void Put(const T& value) {
    if constexpr (std::is_enum_v<T>) {
      Put(static_cast<std::underlying_type_t<T>>(value));
    } else if constexpr (WireNumber<T>) {
      Append(&value, sizeof(value));
    } else {
      WalkFields(*this, value);
    }
  }
  void Put(const std::string& text) {
    Put(uint64_t{text.size()});
    bytes_.append(text);
  }
  template <typename T>
  void Put(const std::optional<T>& value) {
    Put(value.has_value());
    if (value.has_value()) {
      Put(*value);
    }
  }
  template <typename T, size_t N>
  void Put(const std::array<T, N>& values) {
    for (const T& value : values) {
      Put(value);
    }
  }
  template <typename T>
  void Put(const std::vector<T>& values) {
    Put(uint64_t{values.size()});
    if constexpr (WireList<T>) {
      Append(values.data(), values.size() * sizeof(T));
    } else {
      for (const T& value : values) {
        Put(value);
      }
    }
  }
  void Put(const absl::Status& status) {
    Put(static_cast<int32_t>(status.code()));
    Put(std::string(status.message()));
    std::vector<std::string> payloads;  // type, bytes, type, bytes, ..
    status.ForEachPayload([&](absl::string_view type, const absl::Cord& payload) {
      payloads.emplace_back(type);
      payloads.emplace_back(payload);
    });
    Put(payloads);
  }

  std::string& bytes_;
};

// Reads the same from bytes of which nothing is believed: what is not there, no value of its type
// or longer than the rest ends the reading. Memory grows with what was read, not with what is
// promised.
class WireReader {
 public:
  explicit WireReader(absl::string_view bytes) : left_(bytes) {}

  template <typename... Values>
  void operator()(Values&... values) {
    (Take(values), ...);
  }
  // Whether all that was asked for was there, and nothing else.
  bool AtEnd() const { return ok_ && left_.empty(); }

 private:
  // Copies `size` bytes; zeros and false where there are fewer.
  bool Copy(void* target, size_t size) {
    ok_ = ok_ && size <= left_.size();
    if (ok_ && size > 0) {
      std::memcpy(target, left_.data(), size);
      left_.remove_prefix(size);
    }
    return ok_;
  }
  // The number of elements that follow, each of at least `least_bytes`; 0 where they cannot.
  size_t TakeCount(size_t least_bytes) {
    uint64_t count = 0;
    Take(count);
    ok_ = ok_ && count <= left_.size() / least_bytes;
    return ok_ ? static_cast<size_t>(count) : 0;
  }

  template <typename T>
  void Take(T& value) {
    if constexpr (std::is_enum_v<T>) {
      std::underlying_type_t<T> number{};
      Take(number);
      using Range = WireEnum<T>;
      ok_ = ok_ && number >= static_cast<std::underlying_type_t<T>>(Range::kFirst) &&
            number <= static_cast<std::underlying_type_t<T>>(Range::kLast);
      value = ok_ ? static_cast<T>(number) : Range::kFirst;
    } else if constexpr (WireNumber<T>) {
      Copy(&value, sizeof(value));
    } else {
      WalkFields(*this, value);
    }
  }
  void Take(bool& value) {
    uint8_t number = 0;
    Take(number);
    ok_ = ok_ && number <= 1;
    value = number == 1;
  }
  void Take(std::string& text) {
    text.resize(TakeCount(1));
    Copy(text.data(), text.size());
  }
  template <typename T>
  void Take(std::optional<T>& value) {
    bool has_value = false;
    Take(has_value);
    value.reset();
    if (ok_ && has_value) {
      Take(value.emplace());
    }
  }
  template <typename T, size_t N>
  void Take(std::array<T, N>& values) {
    for (T& value : values) {
      Take(value);
    }
  }
  template <typename T>
  void Take(std::vector<T>& values) {
    if constexpr (WireList<T>) {
      values.resize(TakeCount(sizeof(T)));
      Copy(values.data(), values.size() * sizeof(T));
    } else {
      values.clear();
      for (size_t left = TakeCount(1); ok_ && left > 0; --left) {
        Take(values.emplace_back());
      }
    }
  }
  void Take(absl::Status& status) {
    int32_t code = 0;
    std::string message;
    std::vector<std::string> payloads;
    Take(code);
    Take(message);
    Take(payloads);
    ok_ = ok_ && code >= 0 && code <= static_cast<int32_t>(absl::StatusCode::kUnauthenticated) &&
          payloads.size() % 2 == 0 && (code != 0 || (message.empty() && payloads.empty()));
    status = absl::OkStatus();
    if (ok_) {
      status = absl::Status(static_cast<absl::StatusCode>(code), message);
      for (size_t i = 0; i < payloads.size(); i += 2) {
        status.SetPayload(payloads[i], absl::Cord(std::move(payloads[i + 1])));
      }
    }
  }

  absl::string_view left_;
  bool ok_ = true;
};

}  // namespace nightshift
