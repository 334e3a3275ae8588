// ModelCatalog: the packs that this daemon may serve: one given, or every pack in a folder.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#include "kernels/base/mutex.h"
#include "kernels/dtype.h"

namespace nightshift {

struct CatalogModel {
  std::string name;  // the pack folder's name
  std::string path;
  std::string architecture;
  std::string digest;
  DType weights = DType::kBF16;  // of most of its bytes
  int64_t parameters = 0;
  int64_t bytes = 0;
  int64_t context_tokens = 0;
  int64_t vocabulary = 0;
  bool has_tokenizer = false;
  bool has_chat_template = false;
  // When its weights were last written; the least value when that cannot be read.
  std::filesystem::file_time_type changed = std::filesystem::file_time_type::min();
  absl::Status status;  // why the pack cannot be served

  // Its files cannot be opened at all, as those of a disk that is not mounted: it may come back.
  bool is_away() const { return absl::IsNotFound(status) || absl::IsFailedPrecondition(status); }
};

// Thread-safe. Rescan sees packs that were added or changed while the daemon runs.
class ModelCatalog {
 public:
  // `paths`: pack folders; `models_directory`: a folder of packs; either may be empty.
  ModelCatalog(std::vector<std::string> paths, std::string models_directory);
  void Rescan();
  std::vector<CatalogModel> List() const;
  // Empty name: the only model. NOT_FOUND names those that exist; UNAVAILABLE: its pack is away;
  // FAILED_PRECONDITION: not loadable.
  absl::StatusOr<CatalogModel> Find(const std::string& name);
  // The model turned out to have wrong weights: it cannot be served until they are written anew or
  // the daemon starts anew.
  void MarkUnusable(const std::string& name, const absl::Status& why);

 private:
  const std::vector<std::string> paths_;
  const std::string models_directory_;
  mutable Mutex mutex_;
  std::map<std::string, CatalogModel> models_ ABSL_GUARDED_BY(mutex_);
  // Models as they were when they were marked, by path.
  std::map<std::string, CatalogModel> unusable_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace nightshift
