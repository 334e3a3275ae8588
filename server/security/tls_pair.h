// TlsPair: the daemon's certificate with its private key, and who signs its clients' certificates;
// checked before anybody is served with it.
#pragma once

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"

namespace nightshift {

// Paths of PEM files.
struct TlsFiles {
  std::string certificate;  // the daemon's, then what signed it, in order
  std::string key;
  std::string client_ca;  // empty: clients show no certificates
};

struct TlsPair {
  std::string certificate;
  std::string key;
  std::string client_ca;
  int64_t expire_time_us = 0;  // of the first certificate of the chain that expires; wall clock
};

// Reads the files and checks that they go together: all parse, the key is the certificate's, each
// certificate is signed by the next, and it is their time. Errors: NOT_FOUND and the like,
// FAILED_PRECONDITION (others may read the key; not yet valid, expired), INVALID_ARGUMENT; each
// naming the file.
absl::StatusOr<TlsPair> ReadTlsPair(const TlsFiles& files, int64_t now_us);

}  // namespace nightshift
