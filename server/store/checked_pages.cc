#include "server/store/checked_pages.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>

#include <sqlite3.h>

#include "kernels/base/check.h"
#include "kernels/base/checksum.h"
#include "kernels/base/log.h"

namespace nightshift {
namespace {

// A number of our own among sqlite3_file_control's.
constexpr int kTurnChecksOn = 0x4E534350;

// Of a database's header. Source: sqlite.org/fileformat2.html, section 1.3.
constexpr size_t kPageSizeAt = 16;
constexpr size_t kReservedAt = 20;
constexpr int kHeaderBytes = 100;

using Page = std::array<unsigned char, kCheckedPageBytes>;

// What SQLite holds for an open file; the system's own file follows it in memory.
struct CheckedFile {
  sqlite3_file base;
  bool is_database;
  bool is_checked;
};

CheckedFile& Of(sqlite3_file* file) {
  return *reinterpret_cast<CheckedFile*>(file);
}

sqlite3_file* Real(sqlite3_file* file) {
  return reinterpret_cast<sqlite3_file*>(reinterpret_cast<CheckedFile*>(file) + 1);
}

struct Trailer {
  uint32_t page_number;
  uint32_t crc;
};
static_assert(sizeof(Trailer) == kPageTrailerBytes);

Trailer MakeTrailer(const unsigned char* page, int64_t offset) {
  Trailer trailer = {.page_number = static_cast<uint32_t>(offset / kCheckedPageBytes + 1),
                     .crc = 0};
  const uint32_t content = Crc32c(
      std::as_bytes(std::span(page, static_cast<size_t>(kCheckedPageBytes - kPageTrailerBytes))));
  trailer.crc = Crc32c(std::as_bytes(std::span(&trailer.page_number, 1)), content);
  return trailer;
}

bool IsWhole(const unsigned char* page, int64_t offset) {
  const Trailer expected = MakeTrailer(page, offset);
  if (std::memcmp(page + kCheckedPageBytes - kPageTrailerBytes, &expected, sizeof(expected)) == 0) {
    return true;
  }
  // A page that was never written: a hole in the file.
  return std::all_of(page, page + kCheckedPageBytes, [](unsigned char byte) { return byte == 0; });
}

// The header tells of which kind the database is; whoever opens it reads the header first.
void LookAtHeader(CheckedFile& file, const unsigned char* bytes, int num_bytes, int64_t offset) {
  if (file.is_database && offset == 0 && num_bytes >= kHeaderBytes) {
    file.is_checked = bytes[kReservedAt] == kPageTrailerBytes &&
                      bytes[kPageSizeAt] * 256 + bytes[kPageSizeAt + 1] == kCheckedPageBytes;
  }
}

bool IsPage(const CheckedFile& file, int bytes, sqlite3_int64 offset) {
  return file.is_database && file.is_checked && bytes == kCheckedPageBytes &&
         offset % kCheckedPageBytes == 0;
}

int Read(sqlite3_file* file, void* target, int bytes, sqlite3_int64 offset) {
  const int code = Real(file)->pMethods->xRead(Real(file), target, bytes, offset);
  if (code != SQLITE_OK) {
    return code;
  }
  const auto* const read = static_cast<const unsigned char*>(target);
  LookAtHeader(Of(file), read, bytes, offset);
  if (IsPage(Of(file), bytes, offset) && !IsWhole(read, offset)) {
    LOG(ERROR) << "database_page_damaged page=" << offset / kCheckedPageBytes + 1;
    return SQLITE_IOERR_DATA;
  }
  return SQLITE_OK;
}

int Write(sqlite3_file* file, const void* source, int bytes, sqlite3_int64 offset) {
  LookAtHeader(Of(file), static_cast<const unsigned char*>(source), bytes, offset);
  if (!IsPage(Of(file), bytes, offset)) {
    return Real(file)->pMethods->xWrite(Real(file), source, bytes, offset);
  }
  Page page;
  std::memcpy(page.data(), source, page.size());
  const Trailer trailer = MakeTrailer(page.data(), offset);
  std::memcpy(&page[kCheckedPageBytes - kPageTrailerBytes], &trailer, sizeof(trailer));
  return Real(file)->pMethods->xWrite(Real(file), page.data(), bytes, offset);
}

int Control(sqlite3_file* file, int operation, void* argument) {
  if (operation == kTurnChecksOn) {
    Of(file).is_checked = true;
    return SQLITE_OK;
  }
  return Real(file)->pMethods->xFileControl(Real(file), operation, argument);
}

// Everything else goes to the system's file as it is.
template <auto Method, typename... Arguments>
int Forward(sqlite3_file* file, Arguments... arguments) {
  return (Real(file)->pMethods->*Method)(Real(file), arguments...);
}

void Barrier(sqlite3_file* file) {
  Real(file)->pMethods->xShmBarrier(Real(file));
}

int Close(sqlite3_file* file) {
  const int code = Real(file)->pMethods->xClose(Real(file));
  file->pMethods = nullptr;
  return code;
}

using Methods = sqlite3_io_methods;

const Methods& CheckedMethods() {
  // Version 2: without memory maps, which would pass this layer by.
  static const Methods methods = {
      .iVersion = 2,
      .xClose = Close,
      .xRead = Read,
      .xWrite = Write,
      .xTruncate = Forward<&Methods::xTruncate, sqlite3_int64>,
      .xSync = Forward<&Methods::xSync, int>,
      .xFileSize = Forward<&Methods::xFileSize, sqlite3_int64*>,
      .xLock = Forward<&Methods::xLock, int>,
      .xUnlock = Forward<&Methods::xUnlock, int>,
      .xCheckReservedLock = Forward<&Methods::xCheckReservedLock, int*>,
      .xFileControl = Control,
      .xSectorSize = Forward<&Methods::xSectorSize>,
      .xDeviceCharacteristics = Forward<&Methods::xDeviceCharacteristics>,
      .xShmMap = Forward<&Methods::xShmMap, int, int, int, void volatile**>,
      .xShmLock = Forward<&Methods::xShmLock, int, int, int>,
      .xShmBarrier = Barrier,
      .xShmUnmap = Forward<&Methods::xShmUnmap, int>,
      .xFetch = nullptr,
      .xUnfetch = nullptr,
  };
  return methods;
}

int Open(sqlite3_vfs* vfs, const char* name, sqlite3_file* file, int flags, int* flags_out) {
  auto* const system = static_cast<sqlite3_vfs*>(vfs->pAppData);
  Of(file) = {.base = {.pMethods = nullptr},
              .is_database = (flags & SQLITE_OPEN_MAIN_DB) != 0,
              .is_checked = false};
  const int code = system->xOpen(system, name, Real(file), flags, flags_out);
  if (Real(file)->pMethods != nullptr) {
    file->pMethods = &CheckedMethods();
  }
  return code;
}

sqlite3_vfs MakeVfs() {
  sqlite3_vfs* const system = sqlite3_vfs_find(nullptr);
  CHECK(system != nullptr);
  sqlite3_vfs vfs = *system;
  vfs.szOsFile += static_cast<int>(sizeof(CheckedFile));
  vfs.pNext = nullptr;
  vfs.zName = "nightshift-checked";
  vfs.pAppData = system;
  vfs.xOpen = Open;
  return vfs;
}

}  // namespace

const char* CheckedPagesVfs() {
  static sqlite3_vfs vfs = [] {
    CHECK_EQ(sqlite3_initialize(), SQLITE_OK);
    return MakeVfs();
  }();
  static const int registered = sqlite3_vfs_register(&vfs, /*makeDflt=*/0);
  CHECK_EQ(registered, SQLITE_OK);
  return vfs.zName;
}

void CheckPages(sqlite3* database) {
  int bytes = kPageTrailerBytes;
  sqlite3_file_control(database, "main", SQLITE_FCNTL_RESERVE_BYTES, &bytes);
  sqlite3_file_control(database, "main", kTurnChecksOn, nullptr);
}

bool HasCheckedPages(sqlite3* database) {
  int bytes = -1;
  sqlite3_file_control(database, "main", SQLITE_FCNTL_RESERVE_BYTES, &bytes);
  return bytes == kPageTrailerBytes;
}

}  // namespace nightshift
