// A folder that is gone with the object.
#pragma once

#include <filesystem>
#include <string>

#include <stdlib.h>

#include "kernels/base/check.h"

namespace nightshift {

class TemporaryFolder {
 public:
  TemporaryFolder()
      : path_((std::filesystem::temp_directory_path() / "nightshift-XXXXXX").string()) {
    CHECK(mkdtemp(path_.data()) != nullptr);
  }
  ~TemporaryFolder() { std::filesystem::remove_all(path_); }
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;

  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

}  // namespace nightshift
