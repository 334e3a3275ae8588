// The name of the instruction set that the kernels run on.
#pragma once

namespace nightshift::cpu {

// "AVX3_BF16" (AVX-512 with bf16 dots), "AVX3", "AVX2", "SSE4" or "SCALAR". Asks the processor.
const char* TargetName();

}  // namespace nightshift::cpu
