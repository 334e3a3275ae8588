#include "kernels/cpu/target_name.h"

#include "kernels/cpu/bf16_dots.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/target_name.cc"
#include <hwy/foreach_target.h>
// After foreach_target.h, which includes this file again for each target.
#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace nightshift::cpu::HWY_NAMESPACE {

const char* ThisTargetName() {
  return hwy::TargetName(HWY_TARGET);
}

}  // namespace nightshift::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace nightshift::cpu {

HWY_EXPORT(ThisTargetName);

const char* TargetName() {
  return HasBF16Dots() ? "AVX3_BF16" : HWY_DYNAMIC_DISPATCH(ThisTargetName)();
}

}  // namespace nightshift::cpu
#endif
