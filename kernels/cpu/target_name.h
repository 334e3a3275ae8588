// The name of the instruction set that the kernels run on.
#pragma once

namespace nightshift::cpu {

// "AVX3", "AVX2", "SSE4" or "SCALAR".
const char* TargetName();

}  // namespace nightshift::cpu
