// Numbers as people read them.
#pragma once

#include <string>

namespace nightshift {

std::string BytesText(double bytes);       // "1.465 GiB"
std::string DurationText(double seconds);  // "3 h 12 min", "41 s", "2.3 ms"

}  // namespace nightshift
