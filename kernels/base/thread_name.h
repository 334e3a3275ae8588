// What threads are called, in ps, in top -H and in the benchmarks that count what each costs.
#pragma once

namespace nightshift {

// Names the calling thread, and those that it starts until they have a name. At most 15 bytes.
void NameThread(const char* name);

}  // namespace nightshift
