// Failpoint: a named place at which a test ends the process, to see what the next start makes of it.
#pragma once

namespace nightshift {

// Ends the process by SIGKILL when the environment variable NIGHTSHIFT_FAILPOINT names this place:
// "name", or "name:3" at the third time. Otherwise costs a comparison. Thread-safe.
void Failpoint(const char* name);

}  // namespace nightshift
