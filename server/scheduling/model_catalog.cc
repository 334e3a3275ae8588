#include "server/scheduling/model_catalog.h"

#include <algorithm>
#include <system_error>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

#include "engine/model/pack.h"
#include "engine/policy/nightshift_cost.h"
#include "kernels/base/log.h"

namespace nightshift {
namespace {

// Products cannot overflow: Pack::Open has checked every tensor against the extent's size.
int64_t CountParameters(const PackManifest& manifest) {
  int64_t parameters = 0;
  for (const TensorEntry& tensor : manifest.tensors) {
    parameters += tensor.outputs * tensor.inputs;
  }
  return parameters;
}

// The folder's own name, also of "models/llama/" and ".".
std::string NameOf(const std::string& path) {
  std::error_code error;
  const std::filesystem::path whole = std::filesystem::weakly_canonical(path, error);
  const std::filesystem::path known = error ? std::filesystem::path(path) : whole;
  return (known.has_filename() ? known : known.parent_path()).filename().string();
}

std::filesystem::file_time_type WrittenAt(const std::string& path) {
  std::error_code error;
  return std::filesystem::last_write_time(std::filesystem::path(path) / kExtentFile, error);
}

CatalogModel Inspect(const std::string& path) {
  CatalogModel model;
  model.name = NameOf(path);
  model.path = path;
  model.changed = WrittenAt(path);
  const absl::StatusOr<std::unique_ptr<Pack>> pack = Pack::Open(path);
  if (!pack.ok()) {
    model.status = pack.status();
    return model;
  }
  const PackManifest& manifest = (*pack)->manifest();
  model.architecture = manifest.config.architecture;
  model.digest = absl::StrCat(absl::Hex(manifest.digest, absl::kZeroPad16));
  model.weights = MatrixType(manifest);
  model.parameters = CountParameters(manifest);
  model.bytes = manifest.extent_bytes;
  model.context_tokens = manifest.config.context_tokens;
  model.vocabulary = manifest.config.vocabulary;
  model.has_tokenizer = manifest.has_tokenizer;
  model.has_chat_template = manifest.has_chat_template;
  return model;
}

// Every folder with a manifest; a half-written import has none yet.
std::vector<std::string> PacksIn(const std::string& folder) {
  std::vector<std::string> packs;
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator(folder, error)) {
    std::error_code missing;
    if (std::filesystem::exists(entry.path() / kManifestFile, missing)) {
      packs.push_back(entry.path().string());
    }
  }
  if (error) {
    LOG(WARNING) << "models_folder path=" << folder << " error=\"" << error.message() << "\"";
  }
  std::sort(packs.begin(), packs.end());
  return packs;
}

}  // namespace

ModelCatalog::ModelCatalog(std::vector<std::string> paths, std::string models_directory)
    : paths_(std::move(paths)), models_directory_(std::move(models_directory)) {
  Rescan();
}

void ModelCatalog::Rescan() {
  std::vector<std::string> paths = paths_;
  if (!models_directory_.empty()) {
    const std::vector<std::string> found = PacksIn(models_directory_);
    paths.insert(paths.end(), found.begin(), found.end());
  }
  std::map<std::string, CatalogModel> models;
  for (const std::string& path : paths) {
    CatalogModel model = Inspect(path);
    models.emplace(model.name, model);  // a pack that was named wins over one that was found
  }
  MutexLock lock(mutex_);
  for (auto& [name, model] : models) {
    const auto marked = unusable_.find(model.path);
    if (marked != unusable_.end() && marked->second.changed == model.changed &&
        model.status.ok()) {
      model.status = marked->second.status;
    }
  }
  models_ = std::move(models);
}

void ModelCatalog::MarkUnusable(const std::string& name, const absl::Status& why) {
  MutexLock lock(mutex_);
  const auto found = models_.find(name);
  if (found == models_.end()) {
    return;  // its pack is gone
  }
  found->second.changed = WrittenAt(found->second.path);
  found->second.status = why;
  unusable_[found->second.path] = found->second;
}

std::vector<CatalogModel> ModelCatalog::List() const {
  MutexLock lock(mutex_);
  std::vector<CatalogModel> models;
  for (const auto& [name, model] : models_) {
    models.push_back(model);
  }
  return models;
}

absl::StatusOr<CatalogModel> ModelCatalog::Find(const std::string& name) {
  MutexLock lock(mutex_);
  const auto found = name.empty() && models_.size() == 1 ? models_.begin() : models_.find(name);
  if (found == models_.end()) {
    std::string known = absl::StrJoin(
        models_, ", ", [](std::string* text, const auto& entry) { text->append(entry.first); });
    known = known.empty() ? "none" : known;
    const std::string asked =
        name.empty() ? "a model must be named" : absl::StrCat("model ", name, " is not here");
    return absl::NotFoundError(absl::StrCat(asked, "; there are: ", known));
  }
  const CatalogModel& model = found->second;
  if (model.is_away()) {
    return absl::UnavailableError(
        absl::StrCat("the pack of model ", found->first, " is away: ", model.status.message()));
  }
  if (!model.status.ok()) {
    return absl::FailedPreconditionError(
        absl::StrCat("model ", found->first, " cannot be served: ", model.status.message()));
  }
  return found->second;
}

}  // namespace nightshift
