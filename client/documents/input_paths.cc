#include "client/documents/input_paths.h"

#include <cerrno>
#include <cstring>
#include <map>
#include <set>

#include <glob.h>
#include <sys/stat.h>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"

#include "client/documents/document.h"
#include "client/documents/text_check.h"
#include "kernels/base/status_macros.h"

namespace nightshift {
namespace {

absl::Status Refuse(const std::string& pattern, absl::string_view problem) {
  return absl::InvalidArgumentError(absl::StrCat("--input ", ReadableName(pattern), ": ", problem));
}

// Where the name begins in what the pattern matches: behind the last / before the first wildcard.
size_t NameStart(const std::string& pattern) {
  const size_t wildcard = pattern.find_first_of("*?[");
  const size_t slash = pattern.rfind('/', wildcard);
  return slash == std::string::npos ? 0 : slash + 1;
}

absl::StatusOr<std::vector<std::string>> Expand(const std::string& pattern) {
  if (pattern.find_first_of("*?[") == std::string::npos) {
    struct stat info = {};
    if (lstat(pattern.c_str(), &info) != 0) {
      return Refuse(pattern, std::strerror(errno));
    }
    if (S_ISDIR(info.st_mode)) {
      return Refuse(pattern, "is a folder; name its files, as FOLDER/*.txt in quotes");
    }
    return std::vector<std::string>{pattern};
  }
  if (absl::StrContains(pattern, "**")) {
    return Refuse(pattern, "** is not known; give a pattern for each depth of folders");
  }
  glob_t matches = {};
  const int code = glob(pattern.c_str(), GLOB_ERR, nullptr, &matches);
  const int error = errno;
  const std::vector<std::string> paths(matches.gl_pathv, matches.gl_pathv + matches.gl_pathc);
  globfree(&matches);
  if (code == GLOB_NOMATCH) {
    return Refuse(pattern, "matches no file");
  }
  return code == 0 ? absl::StatusOr<std::vector<std::string>>(paths)
                   : Refuse(pattern, std::strerror(error));
}

}  // namespace

absl::StatusOr<std::vector<InputPath>> FindInputs(const std::vector<std::string>& patterns) {
  std::vector<InputPath> found;
  std::set<std::string> paths;
  std::map<std::string, std::string> names;  // name -> path
  for (const std::string& pattern : patterns) {
    ASSIGN_OR_RETURN(const std::vector<std::string> matches, Expand(pattern));
    for (const std::string& path : matches) {
      if (!paths.insert(path).second) {
        continue;
      }
      const std::string name = ReadableName(path.substr(NameStart(pattern)));
      if (name.size() > kMaxDocumentIdBytes) {
        return Refuse(pattern, absl::StrCat("the name of ", name, " has ", name.size(),
                                            " bytes, at most ", kMaxDocumentIdBytes));
      }
      if (const auto [other, is_new] = names.emplace(name, path); !is_new) {
        return Refuse(pattern, absl::StrCat(path, " and ", other->second, " are both called ", name,
                                            "; a pattern with a wildcard in the folder, as "
                                            "FOLDERS*/*.txt, tells them apart"));
      }
      found.push_back({.path = path, .name = name});
    }
  }
  return found;
}

}  // namespace nightshift
