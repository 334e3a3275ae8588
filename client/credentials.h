// Credentials: what a client shows a daemon, and what it trusts: a token, certificates. Read from
// files, never from a command line, which every user of a machine can see.
#pragma once

#include <string>

#include "absl/status/statusor.h"

namespace nightshift {

// Paths; empty for none.
struct CredentialFiles {
  std::string token;               // one line: the token
  std::string ca;                  // PEM: who signs the daemon's certificate
  std::string client_certificate;  // PEM: the client's, with what signed it
  std::string client_key;          // PEM: its private key
};

struct Credentials {
  std::string token;  // empty: none
  bool uses_tls = false;
  // PEM; ca empty: the system's.
  std::string ca;
  std::string client_certificate;
  std::string client_key;
};

// True for what no network carries: "unix:PATH" and loopback addresses.
bool IsLocalAddress(const std::string& address);

// Reads the files that a channel to this address needs: TLS is used where a CA is given, and to
// every address that is not local. A Unix socket needs no certificates: they are not read. Errors:
// NOT_FOUND and the like naming the file; FAILED_PRECONDITION (others may read the token or the
// key), INVALID_ARGUMENT (no token in the file, a certificate without its key).
absl::StatusOr<Credentials> LoadCredentials(const CredentialFiles& files,
                                            const std::string& address);

}  // namespace nightshift
