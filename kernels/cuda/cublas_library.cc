#include "kernels/cuda/cublas_library.h"

#include <string>

#include <dlfcn.h>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"

namespace nightshift::cuda {
namespace {

// Finds one call; keeps the name of the first that is not there.
class Finder {
 public:
  explicit Finder(void* library) : library_(library) {}

  template <typename Call>
  void Find(const char* name, Call& call) {
    call = reinterpret_cast<Call>(dlsym(library_, name));
    if (call == nullptr && missing_.empty()) missing_ = name;
  }
  const std::string& missing() const { return missing_; }

 private:
  void* library_;
  std::string missing_;
};

}  // namespace

absl::StatusOr<CublasLibrary> LoadCublasLibrary() {
  const std::string name = absl::StrCat("libcublasLt.so.", CUBLAS_VER_MAJOR);
  void* library = dlopen(name.c_str(), RTLD_NOW | RTLD_LOCAL);
#ifdef NIGHTSHIFT_CUDA_LIBRARIES
  if (library == nullptr) {
    // Where the toolkit that this was built with has it.
    library = dlopen(absl::StrCat(NIGHTSHIFT_CUDA_LIBRARIES "/", name).c_str(),
                     RTLD_NOW | RTLD_LOCAL);
  }
#endif
  if (library == nullptr) {
    return absl::FailedPreconditionError(
        absl::StrCat("load ", name, ": ", dlerror(), "; install NVIDIA's cuBLAS of CUDA ",
                     CUBLAS_VER_MAJOR, " or name its folder in LD_LIBRARY_PATH"));
  }
  Finder finder(library);
  CublasLibrary found;
  finder.Find("cublasLtGetStatusName", found.status_name);
  finder.Find("cublasLtCreate", found.create);
  finder.Find("cublasLtDestroy", found.destroy);
  finder.Find("cublasLtMatmulDescCreate", found.create_product);
  finder.Find("cublasLtMatmulDescSetAttribute", found.set_product);
  finder.Find("cublasLtMatmulDescDestroy", found.destroy_product);
  finder.Find("cublasLtMatrixLayoutCreate", found.create_layout);
  finder.Find("cublasLtMatrixLayoutDestroy", found.destroy_layout);
  finder.Find("cublasLtMatmulPreferenceCreate", found.create_preference);
  finder.Find("cublasLtMatmulPreferenceSetAttribute", found.set_preference);
  finder.Find("cublasLtMatmulPreferenceDestroy", found.destroy_preference);
  finder.Find("cublasLtMatmulAlgoGetHeuristic", found.find_algorithm);
  finder.Find("cublasLtMatmulAlgoCheck", found.check_algorithm);
  finder.Find("cublasLtMatmul", found.multiply);
  if (!finder.missing().empty()) {
    return absl::FailedPreconditionError(
        absl::StrCat("load ", name, ": it has no ", finder.missing()));
  }
  return found;
}

}  // namespace nightshift::cuda
