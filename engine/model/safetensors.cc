#include "engine/model/safetensors.h"

#include <algorithm>
#include <array>
#include <map>
#include <set>
#include <utility>

#include <nlohmann/json.hpp>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"

#include "engine/model/safetensors_header.h"
#include "engine/model/strict_json.h"
#include "kernels/base/status_macros.h"

namespace nightshift {
namespace {

constexpr int64_t kLengthBytes = 8;
constexpr int64_t kMaxIndexBytes = 64 << 20;
constexpr size_t kMaxFiles = 10'000;
constexpr char kSingleFile[] = "model.safetensors";
constexpr char kIndexFile[] = "model.safetensors.index.json";

int64_t LittleEndian64(const std::array<std::byte, kLengthBytes>& bytes) {
  uint64_t value = 0;
  for (size_t i = 0; i < bytes.size(); ++i) {
    value |= std::to_integer<uint64_t>(bytes[i]) << (8 * i);
  }
  // Beyond the signed range is beyond every bound that follows too.
  return static_cast<int64_t>(std::min<uint64_t>(value, INT64_MAX));
}

// Files of an index stay inside the folder: a plain name, not a path.
bool IsPlainName(const std::string& name) {
  return !name.empty() && name != "." && name != ".." && name.size() <= 255 &&
         name.find('/') == std::string::npos && name.find('\\') == std::string::npos &&
         name.find('\0') == std::string::npos;
}

// Tensor name -> file name.
absl::StatusOr<std::map<std::string, std::string>> ReadIndex(const std::string& path) {
  ASSIGN_OR_RETURN(const std::string text, ReadTextFile(path, kMaxIndexBytes));
  ASSIGN_OR_RETURN(const nlohmann::json index, ParseStrictJson(text, path));
  const auto weight_map = index.find("weight_map");
  if (weight_map == index.end() || !weight_map->is_object() || weight_map->empty()) {
    return absl::InvalidArgumentError(absl::StrCat(path, ": weight_map is not an object of names"));
  }
  std::map<std::string, std::string> result;
  for (const auto& [tensor, file] : weight_map->items()) {
    if (!file.is_string() || !IsPlainName(file.get_ref<const std::string&>())) {
      return absl::InvalidArgumentError(
          absl::StrCat(path, ": the file of tensor ", tensor.substr(0, kMaxSourceNameBytes),
                       " is not the plain name of a file in the same folder"));
    }
    result.emplace(tensor, file.get<std::string>());
  }
  return result;
}

absl::Status CheckUniqueNames(const std::vector<SourceTensor>& tensors, const std::string& what) {
  std::set<absl::string_view> names;
  for (const SourceTensor& tensor : tensors) {
    if (!names.insert(tensor.name).second) {
      return absl::InvalidArgumentError(
          absl::StrCat(what, ": tensor ", tensor.name, " occurs twice"));
    }
  }
  return absl::OkStatus();
}

// The index and the files must name the same tensors in the same places: a leftover or a missing
// shard must not go unnoticed.
absl::Status CheckIndexAgrees(const std::map<std::string, std::string>& index,
                              const std::vector<std::string>& file_names,
                              const std::vector<SourceTensor>& tensors, const std::string& what) {
  for (const SourceTensor& tensor : tensors) {
    const auto entry = index.find(tensor.name);
    if (entry == index.end() || entry->second != file_names[tensor.file_index]) {
      return absl::InvalidArgumentError(absl::StrCat(what, ": tensor ", tensor.name, " lies in ",
                                                     file_names[tensor.file_index],
                                                     ", which the index does not say"));
    }
  }
  if (index.size() != tensors.size()) {
    return absl::InvalidArgumentError(absl::StrCat(what, ": the index names ", index.size(),
                                                   " tensors, its files hold ", tensors.size()));
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::vector<SourceTensor>> ReadSafetensorsHeader(const SourceFile& file,
                                                                size_t file_index) {
  std::array<std::byte, kLengthBytes> length_bytes{};
  RETURN_IF_ERROR(file.Read(0, length_bytes));
  const int64_t header_bytes = LittleEndian64(length_bytes);
  const int64_t header_limit = std::min(kMaxSafetensorsHeaderBytes, file.bytes() - kLengthBytes);
  if (header_bytes < 2 || header_bytes > header_limit) {
    return absl::InvalidArgumentError(absl::StrCat(file.path(), ": a header of ", header_bytes,
                                                   " bytes; 2 to ", header_limit, " are possible"));
  }
  std::string text(static_cast<size_t>(header_bytes), '\0');
  RETURN_IF_ERROR(file.Read(kLengthBytes, std::as_writable_bytes(std::span(text))));
  const int64_t data_begin = kLengthBytes + header_bytes;
  const int64_t data_bytes = file.bytes() - data_begin;
  ASSIGN_OR_RETURN(std::vector<SourceTensor> tensors,
                   ParseSafetensorsHeader(text, data_bytes, file.path()));
  std::sort(tensors.begin(), tensors.end(),
            [](const SourceTensor& a, const SourceTensor& b) { return a.offset < b.offset; });
  int64_t end = 0;
  for (SourceTensor& tensor : tensors) {
    if (tensor.offset != end) {
      return absl::InvalidArgumentError(
          absl::StrCat(file.path(), ": tensor ", tensor.name, " begins at byte ", tensor.offset,
                       " of the data where ", end, " belongs (a gap or an overlap)"));
    }
    end += tensor.rows * tensor.row_bytes;
    tensor.offset += data_begin;
    tensor.file_index = file_index;
  }
  if (end != data_bytes) {
    return absl::InvalidArgumentError(absl::StrCat(file.path(), ": its tensors cover ", end,
                                                   " of the ", data_bytes, " bytes of data"));
  }
  return tensors;
}

absl::StatusOr<std::unique_ptr<SafetensorsCheckpoint>> SafetensorsCheckpoint::Open(
    const std::string& folder) {
  const std::string index_path = absl::StrCat(folder, "/", kIndexFile);
  auto index = ReadIndex(index_path);
  const bool has_index = index.ok();
  if (!has_index && !absl::IsNotFound(index.status())) {
    return index.status();
  }
  std::set<std::string> names = {kSingleFile};
  if (has_index) {
    names.clear();
    for (const auto& [tensor, file] : *index) {
      names.insert(file);
    }
  }
  if (names.size() > kMaxFiles) {
    return absl::InvalidArgumentError(absl::StrCat(index_path, ": names ", names.size(),
                                                   " files, at most ", kMaxFiles, " are taken"));
  }
  const std::vector<std::string> file_names(names.begin(), names.end());
  std::vector<SourceFile> files;
  std::vector<SourceTensor> tensors;
  for (size_t i = 0; i < file_names.size(); ++i) {
    ASSIGN_OR_RETURN(SourceFile file, SourceFile::Open(absl::StrCat(folder, "/", file_names[i])));
    ASSIGN_OR_RETURN(std::vector<SourceTensor> part, ReadSafetensorsHeader(file, i));
    std::move(part.begin(), part.end(), std::back_inserter(tensors));
    files.push_back(std::move(file));
    if (tensors.size() > static_cast<size_t>(kMaxSourceTensors)) {
      return absl::InvalidArgumentError(
          absl::StrCat(folder, ": more than ", kMaxSourceTensors, " tensors"));
    }
  }
  RETURN_IF_ERROR(CheckUniqueNames(tensors, folder));
  if (has_index) {
    RETURN_IF_ERROR(CheckIndexAgrees(*index, file_names, tensors, folder));
  }
  return std::make_unique<SafetensorsCheckpoint>(std::move(files), std::move(tensors));
}

SafetensorsCheckpoint::SafetensorsCheckpoint(std::vector<SourceFile> files,
                                             std::vector<SourceTensor> tensors)
    : files_(std::move(files)), tensors_(std::move(tensors)) {}

absl::Status SafetensorsCheckpoint::ReadRows(const SourceTensor& tensor, int64_t first_row,
                                             std::span<std::byte> target) const {
  return files_[tensor.file_index].Read(tensor.offset + first_row * tensor.row_bytes, target);
}

}  // namespace nightshift
