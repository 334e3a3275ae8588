#include "kernels/noise.h"

#include <cmath>

#include "kernels/ops.h"

namespace nightshift {

float NoiseAt(uint64_t noise_key, int32_t token) {
  return static_cast<float>(-std::log(-std::log(UniformAt(noise_key, token))));
}

}  // namespace nightshift
