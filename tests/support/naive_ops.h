// The ops in the plainest form, in double: what the devices' kernels are tested against.
// Results come with what a bound on the rounding error of an f32 kernel needs.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "kernels/ops.h"

namespace nightshift::naive {

// Half the distance of 1.0 to the next f32: the relative error of one rounding.
inline constexpr double kF32Rounding = 0x1p-24;

// `count` values, uniform in [-1, 1), the same for the same seed on every machine.
std::vector<float> RandomValues(int64_t count, uint64_t seed);

// The nearest value of a float type, ties to even, by comparing neighbours in double.
float RoundTo(DType dtype, float value);
std::vector<float> RoundTo(DType dtype, std::vector<float> values);

struct Result {
  std::vector<double> values;
  std::vector<double> tolerances;  // bound on the error of an f32 kernel, element by element
};

// x [T, K], weight [N, K], bias [N] or empty. Tolerance: (K + 2) roundings of the sum of |terms|.
Result MatMul(std::span<const float> x, std::span<const float> weight, std::span<const float> bias,
              int64_t outputs, int64_t inputs);

// One row. Tolerance: columns + 8 roundings of the largest output.
Result RmsNorm(std::span<const float> x, std::span<const float> weight, double epsilon);
Result LayerNorm(std::span<const float> x, std::span<const float> weight,
                 std::span<const float> bias, double epsilon);

double Activate(Activation activation, double x);

// Rotates one head, half-split pairs; angle = position * frequency rounded to f32.
std::vector<double> Rope(std::span<const float> head, std::span<const float> inverse_frequencies,
                         int32_t position, double magnitude);

// Keys, or values, as pages hold them, and how large the terms are whose sum each is: of integer
// groups |scale * code| + |minimum|.
struct StoredKv {
  std::vector<float> values;
  std::vector<float> magnitudes;
};

// The Walsh-Hadamard transform of each head's row in blocks of the largest power of two that divides
// `head_width`, in f32, times 2^`power`: neighbours first, then at distances 2, 4 and so on.
std::vector<float> TransformHeads(std::vector<float> rows, int64_t head_width, int power);
// Powers for keys and for queries.
int KeyPower(int64_t head_width);
int QueryPower(int64_t head_width);

// Rounded to a float type, or quantised to asymmetric groups of 64 of each head's row of
// `head_width`, the last one shorter. `values` are finite.
StoredKv StoreKv(DType dtype, const std::vector<float>& values, int64_t head_width);

struct AttentionInput {
  std::vector<float> q;       // [T, H*D], rows at positions first_position + row
  std::vector<float> keys;    // [first_position + T, G*D], as stored
  std::vector<float> values;  // as keys
  std::vector<float> key_magnitudes;
  std::vector<float> value_magnitudes;
  int64_t num_heads = 0;
  int64_t kv_heads = 0;
  int64_t head_width = 0;
  int64_t first_position = 0;
  double scale = 1.0;
  double softcap = 0.0;  // above 0: of scaled scores
  int64_t window = 0;    // above 0: keys that a query sees, its own the last
  double weight_rounding = 0.0;  // relative, of a weight before it multiplies its value
};

// cap * tanh(x / cap).
double SoftCap(double x, double cap);

// Causal attention [T, H*D]. Tolerance: scores are sums of D terms, weights are off by their
// scores' error twice (numerator and sum), values are sums over the keys.
Result Attention(const AttentionInput& input);

}  // namespace nightshift::naive
