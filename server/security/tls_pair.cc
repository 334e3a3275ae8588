#include "server/security/tls_pair.h"

#include <algorithm>
#include <ctime>
#include <limits>
#include <memory>
#include <utility>
#include <vector>

#include <openssl/asn1.h>
#include <openssl/bio.h>
#include <openssl/err.h>
#include <openssl/evp.h>
#include <openssl/pem.h>
#include <openssl/x509.h>
#include <openssl/x509v3.h>
#include <sys/stat.h>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/time/time.h"

#include "kernels/base/check.h"
#include "kernels/base/file_descriptor.h"
#include "kernels/base/status_macros.h"

namespace nightshift {
namespace {

constexpr int64_t kMaxPemBytes = 4 << 20;

struct Free {
  void operator()(BIO* bio) const { BIO_free(bio); }
  void operator()(X509* certificate) const { X509_free(certificate); }
  void operator()(EVP_PKEY* key) const { EVP_PKEY_free(key); }
};
using Bio = std::unique_ptr<BIO, Free>;
using Certificate = std::unique_ptr<X509, Free>;
using Key = std::unique_ptr<EVP_PKEY, Free>;

Bio BioOf(const std::string& text) {
  Bio bio(BIO_new_mem_buf(text.data(), static_cast<int>(text.size())));
  CHECK(bio != nullptr);
  return bio;
}

// A daemon cannot ask for a pass phrase.
int NoPassPhrase(char* /*buffer*/, int /*size*/, int /*writes*/, void* /*unused*/) {
  return 0;
}

absl::StatusOr<std::string> ReadPem(const std::string& path) {
  return ReadSmallFile(path, kMaxPemBytes);
}

absl::StatusOr<std::vector<Certificate>> ParseCertificates(const std::string& path,
                                                           const std::string& pem) {
  const Bio bio = BioOf(pem);
  std::vector<Certificate> certificates;
  while (true) {
    Certificate next(PEM_read_bio_X509(bio.get(), nullptr, NoPassPhrase, nullptr));
    if (next == nullptr) {
      break;
    }
    certificates.push_back(std::move(next));
  }
  // The end of the file is an error too: of no further certificate.
  const bool ended = ERR_GET_REASON(ERR_peek_last_error()) == PEM_R_NO_START_LINE;
  ERR_clear_error();
  if (certificates.empty() || !ended) {
    return absl::InvalidArgumentError(
        absl::StrCat(path, ": certificate ", certificates.size() + 1,
                     " does not parse; it must be PEM (-----BEGIN CERTIFICATE-----)"));
  }
  return certificates;
}

absl::StatusOr<Key> ParseKey(const std::string& path, const std::string& pem) {
  Key key(PEM_read_bio_PrivateKey(BioOf(pem).get(), nullptr, NoPassPhrase, nullptr));
  ERR_clear_error();
  if (key == nullptr) {
    return absl::InvalidArgumentError(absl::StrCat(
        path, ": the private key does not parse; it must be PEM, and have no pass phrase"));
  }
  return key;
}

int64_t MicrosOf(const ASN1_TIME* time) {
  std::tm parts = {};
  if (ASN1_TIME_to_tm(time, &parts) != 1) {
    return std::numeric_limits<int64_t>::max();
  }
  return int64_t{::timegm(&parts)} * 1'000'000;
}

std::string TimeText(int64_t time_us) {
  return absl::FormatTime("%Y-%m-%dT%H:%M:%SZ", absl::FromUnixMicros(time_us), absl::UTCTimeZone());
}

// Of each certificate of the chain. When the first of them expires.
absl::StatusOr<int64_t> CheckDates(const std::string& path, const std::vector<Certificate>& chain,
                                   int64_t now_us) {
  int64_t first_end_us = std::numeric_limits<int64_t>::max();
  for (size_t i = 0; i < chain.size(); ++i) {
    const int64_t begin_us = MicrosOf(X509_get0_notBefore(chain[i].get()));
    const int64_t end_us = MicrosOf(X509_get0_notAfter(chain[i].get()));
    if (now_us < begin_us) {
      return absl::FailedPreconditionError(absl::StrCat(
          path, ": certificate ", i + 1, " is valid from ", TimeText(begin_us), " on only"));
    }
    if (now_us >= end_us) {
      return absl::FailedPreconditionError(
          absl::StrCat(path, ": certificate ", i + 1, " has expired at ", TimeText(end_us)));
    }
    first_end_us = std::min(first_end_us, end_us);
  }
  return first_end_us;
}

absl::Status CheckChain(const std::string& path, const std::vector<Certificate>& chain) {
  for (size_t i = 0; i + 1 < chain.size(); ++i) {
    const bool is_signed = X509_check_issued(chain[i + 1].get(), chain[i].get()) == X509_V_OK &&
                           X509_verify(chain[i].get(), X509_get0_pubkey(chain[i + 1].get())) == 1;
    ERR_clear_error();
    if (!is_signed) {
      return absl::InvalidArgumentError(
          absl::StrCat(path, ": certificate ", i + 1, " is not signed by certificate ", i + 2,
                       "; the daemon's comes first, then what signed it"));
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<std::string> ReadKey(const std::string& path) {
  struct stat file = {};
  if (::stat(path.c_str(), &file) != 0) {
    return ErrnoStatus("read private key", path);
  }
  if ((file.st_mode & S_IRWXO) != 0) {
    return absl::FailedPreconditionError(
        absl::StrCat(path, ": every user can read this private key; chmod 600 ", path));
  }
  return ReadPem(path);
}

}  // namespace

absl::StatusOr<TlsPair> ReadTlsPair(const TlsFiles& files, int64_t now_us) {
  TlsPair pair;
  ASSIGN_OR_RETURN(pair.certificate, ReadPem(files.certificate));
  ASSIGN_OR_RETURN(pair.key, ReadKey(files.key));
  ASSIGN_OR_RETURN(const std::vector<Certificate> chain,
                   ParseCertificates(files.certificate, pair.certificate));
  ASSIGN_OR_RETURN(const Key key, ParseKey(files.key, pair.key));
  const bool belongs = X509_check_private_key(chain.front().get(), key.get()) == 1;
  ERR_clear_error();
  if (!belongs) {
    return absl::InvalidArgumentError(absl::StrCat(
        files.key, ": this is not the private key of the certificate in ", files.certificate));
  }
  RETURN_IF_ERROR(CheckChain(files.certificate, chain));
  ASSIGN_OR_RETURN(pair.expire_time_us, CheckDates(files.certificate, chain, now_us));
  if (!files.client_ca.empty()) {
    ASSIGN_OR_RETURN(pair.client_ca, ReadPem(files.client_ca));
    RETURN_IF_ERROR(ParseCertificates(files.client_ca, pair.client_ca).status());
  }
  return pair;
}

}  // namespace nightshift
