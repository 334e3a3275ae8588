#include "kernels/base/check.h"

#include <cstdio>
#include <cstdlib>

namespace nightshift {

void CheckFailed(const char* file, int line, const char* condition, const std::string& detail) {
  std::fprintf(stderr, "%s:%d: CHECK(%s) %s\n", file, line, condition, detail.c_str());
  std::abort();
}

}  // namespace nightshift
