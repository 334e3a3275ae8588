#include "kernels/base/thread_name.h"

#include <pthread.h>

namespace nightshift {

void NameThread(const char* name) {
  pthread_setname_np(pthread_self(), name);
}

}  // namespace nightshift
