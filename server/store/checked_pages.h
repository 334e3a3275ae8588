// Checked pages: a layer below SQLite that keeps a checksum in each page of a database and looks at
// it whenever a page is read, so that damage is found where SQLite's own checks cannot see it.
#pragma once

#include "absl/status/status.h"

struct sqlite3;

namespace nightshift {

// Bytes at the end of each page, which SQLite leaves to us: the page's number and a CRC32C of all
// that stands before, each 4 bytes, little-endian.
inline constexpr int kPageTrailerBytes = 8;
inline constexpr int kCheckedPageBytes = 4096;

// The name under which SQLite opens files through this layer. A page that fails its checksum is
// SQLITE_IOERR_DATA. Databases whose pages have no trailer are read and written as they are. The
// log has checksums of its own, which SQLite looks at when it recovers.
const char* CheckedPagesVfs();

// Gives a database that is still empty pages with trailers.
void CheckPages(sqlite3* database);

// Whether its pages have trailers, as its header says.
bool HasCheckedPages(sqlite3* database);

}  // namespace nightshift
