#include "tests/support/naive_ops.h"

#include <algorithm>
#include <cmath>
#include <utility>

namespace nightshift::naive {
namespace {

// Bits of precision, least exponent of a normal number, and the largest finite value of a type.
struct Format {
  int precision;
  int min_exponent;
  double largest;
};

Format FormatOf(DType dtype) {
  if (dtype == DType::kF16) return {11, -14, 65504.0};
  return {8, -126, 0x1.FEp127};
}

double Dot(std::span<const float> a, std::span<const float> b) {
  double sum = 0.0;
  for (size_t i = 0; i < a.size(); ++i) {
    sum += static_cast<double>(a[i]) * static_cast<double>(b[i]);
  }
  return sum;
}

double DotOfMagnitudes(std::span<const float> a, std::span<const float> b) {
  double sum = 0.0;
  for (size_t i = 0; i < a.size(); ++i) {
    sum += std::abs(static_cast<double>(a[i]) * static_cast<double>(b[i]));
  }
  return sum;
}

void SetRowTolerances(Result& result) {
  double largest = 0.0;
  for (const double value : result.values) {
    largest = std::max(largest, std::abs(value));
  }
  const double roundings = static_cast<double>(result.values.size()) + 8.0;
  result.tolerances.assign(result.values.size(), roundings * kF32Rounding * largest);
}

}  // namespace

std::vector<float> RandomValues(int64_t count, uint64_t seed) {
  std::vector<float> values(static_cast<size_t>(count));
  uint64_t state = seed * 2 + 1;
  for (float& value : values) {
    state = state * 6364136223846793005U + 1442695040888963407U;
    value = static_cast<float>(static_cast<int64_t>(state >> 40) - (1 << 23)) * 0x1p-23F;
  }
  return values;
}

float RoundTo(DType dtype, float value) {
  if (dtype == DType::kF32 || !std::isfinite(value) || value == 0.0F) return value;
  const Format format = FormatOf(dtype);
  const double exact = static_cast<double>(value);
  const int exponent = std::max(std::ilogb(exact), format.min_exponent);
  const double unit = std::ldexp(1.0, exponent - format.precision + 1);
  const double rounded = std::nearbyint(exact / unit) * unit;  // exact quotient, ties to even
  if (std::abs(rounded) > format.largest) return std::copysign(INFINITY, value);
  return static_cast<float>(std::copysign(rounded, exact));
}

std::vector<float> RoundTo(DType dtype, std::vector<float> values) {
  for (float& value : values) {
    value = RoundTo(dtype, value);
  }
  return values;
}

Result MatMul(std::span<const float> x, std::span<const float> weight, std::span<const float> bias,
              int64_t outputs, int64_t inputs) {
  Result result;
  const auto columns = static_cast<size_t>(inputs);
  for (size_t row = 0; row * columns < x.size(); ++row) {
    for (size_t n = 0; n < static_cast<size_t>(outputs); ++n) {
      const auto x_row = x.subspan(row * columns, columns);
      const auto weight_row = weight.subspan(n * columns, columns);
      const double shift = bias.empty() ? 0.0 : static_cast<double>(bias[n]);
      result.values.push_back(Dot(x_row, weight_row) + shift);
      result.tolerances.push_back((static_cast<double>(inputs) + 2.0) * kF32Rounding *
                                  (DotOfMagnitudes(x_row, weight_row) + std::abs(shift)));
    }
  }
  return result;
}

Result RmsNorm(std::span<const float> x, std::span<const float> weight, double epsilon) {
  Result result;
  const double mean = Dot(x, x) / static_cast<double>(x.size());
  for (size_t i = 0; i < x.size(); ++i) {
    result.values.push_back(static_cast<double>(x[i]) / std::sqrt(mean + epsilon) *
                            static_cast<double>(weight[i]));
  }
  SetRowTolerances(result);
  return result;
}

Result LayerNorm(std::span<const float> x, std::span<const float> weight,
                 std::span<const float> bias, double epsilon) {
  Result result;
  const auto count = static_cast<double>(x.size());
  double mean = 0.0;
  for (const float value : x) {
    mean += static_cast<double>(value) / count;
  }
  double variance = 0.0;
  for (const float value : x) {
    variance += (static_cast<double>(value) - mean) * (static_cast<double>(value) - mean) / count;
  }
  for (size_t i = 0; i < x.size(); ++i) {
    result.values.push_back((static_cast<double>(x[i]) - mean) / std::sqrt(variance + epsilon) *
                                static_cast<double>(weight[i]) +
                            static_cast<double>(bias[i]));
  }
  SetRowTolerances(result);
  return result;
}

double Activate(Activation activation, double x) {
  switch (activation) {
    case Activation::kNone:
      return x;
    case Activation::kRelu:
      return std::max(x, 0.0);
    case Activation::kSilu:
      return x / (1.0 + std::exp(-x));
    case Activation::kGeluTanh:
      return 0.5 * x * (1.0 + std::tanh(std::sqrt(2.0 / M_PI) * (x + 0.044715 * x * x * x)));
    case Activation::kGeluErf:
      return 0.5 * x * std::erfc(-x / std::sqrt(2.0));
  }
  return x;
}

std::vector<double> Rope(std::span<const float> head, std::span<const float> inverse_frequencies,
                         int32_t position, double magnitude) {
  std::vector<double> rotated(head.begin(), head.end());
  const size_t pairs = inverse_frequencies.size();
  for (size_t i = 0; i < pairs; ++i) {
    const double angle = static_cast<double>(static_cast<float>(position) * inverse_frequencies[i]);
    const double cosine = std::cos(angle) * magnitude;
    const double sine = std::sin(angle) * magnitude;
    const auto low = static_cast<double>(head[i]);
    const auto high = static_cast<double>(head[i + pairs]);
    rotated[i] = low * cosine - high * sine;
    rotated[i + pairs] = high * cosine + low * sine;
  }
  return rotated;
}

double SoftCap(double x, double cap) {
  return cap * std::tanh(x / cap);
}

int KeyPower(int64_t head_width) {
  int log = 0;
  while (head_width % (int64_t{2} << log) == 0) {
    ++log;
  }
  return -(log / 2);
}

int QueryPower(int64_t head_width) {
  int log = 0;
  while (head_width % (int64_t{2} << log) == 0) {
    ++log;
  }
  return log / 2 - log;
}

std::vector<float> TransformHeads(std::vector<float> rows, int64_t head_width, int power) {
  int64_t block = 1;
  while (head_width % (2 * block) == 0) {
    block *= 2;
  }
  for (int64_t distance = 1; distance < block; distance *= 2) {
    std::vector<float> next(rows.size());
    for (size_t i = 0; i < rows.size(); ++i) {
      const auto in_head = static_cast<int64_t>(i) % head_width;
      const bool is_second = in_head / distance % 2 == 1;
      const auto step = static_cast<size_t>(distance);
      next[i] = is_second ? rows[i - step] - rows[i] : rows[i] + rows[i + step];
    }
    rows = std::move(next);
  }
  for (float& value : rows) {
    value = std::ldexp(value, power);
  }
  return rows;
}

StoredKv StoreKv(DType dtype, const std::vector<float>& values, int64_t head_width) {
  StoredKv stored;
  if (IsFloat(dtype)) {
    stored.values = RoundTo(dtype, values);
    for (const float value : stored.values) {
      stored.magnitudes.push_back(std::abs(value));
    }
    return stored;
  }
  const double levels = dtype == DType::kU4G64 ? 15.0 : 255.0;
  for (size_t row = 0; row < values.size(); row += static_cast<size_t>(head_width)) {
    for (int64_t first = 0; first < head_width; first += 64) {
      const auto begin = values.begin() + static_cast<int64_t>(row) + first;
      const auto end = begin + std::min<int64_t>(64, head_width - first);
      const double low = static_cast<double>(*std::min_element(begin, end));
      const double spread = static_cast<double>(*std::max_element(begin, end)) - low;
      const auto scale = RoundTo(DType::kF16, static_cast<float>(spread / levels));
      const auto minimum = RoundTo(DType::kF16, static_cast<float>(low));
      for (auto at = begin; at != end; ++at) {
        const double code =
            spread > 0.0 ? std::nearbyint((static_cast<double>(*at) - low) * levels / spread) : 0.0;
        const float product = static_cast<float>(code) * scale;
        stored.values.push_back(product + minimum);
        stored.magnitudes.push_back(product + std::abs(minimum));
      }
    }
  }
  return stored;
}

Result Attention(const AttentionInput& input) {
  const auto width = static_cast<size_t>(input.head_width);
  const auto heads = static_cast<size_t>(input.num_heads);
  const auto kv_heads = static_cast<size_t>(input.kv_heads);
  const size_t rows = input.q.size() / (heads * width);
  Result result;
  for (size_t row = 0; row < rows; ++row) {
    const size_t num_keys = static_cast<size_t>(input.first_position) + row + 1;
    const auto window = static_cast<size_t>(input.window);
    const size_t first_key = window == 0 || window > num_keys ? 0 : num_keys - window;
    for (size_t head = 0; head < heads; ++head) {
      const size_t column = head / (heads / kv_heads) * width;
      const auto q = std::span(input.q).subspan((row * heads + head) * width, width);
      std::vector<double> weights;
      double max_score = -INFINITY;
      double max_magnitude = 0.0;
      for (size_t key = first_key; key < num_keys; ++key) {
        const auto k = std::span(input.keys).subspan(key * kv_heads * width + column, width);
        const double score = Dot(q, k) * input.scale;
        weights.push_back(input.softcap > 0.0 ? SoftCap(score, input.softcap) : score);
        max_score = std::max(max_score, weights.back());
        const auto magnitudes =
            std::span(input.key_magnitudes).subspan(key * kv_heads * width + column, width);
        max_magnitude =
            std::max(max_magnitude, DotOfMagnitudes(q, magnitudes) * std::abs(input.scale));
      }
      double sum = 0.0;
      for (double& weight : weights) {
        weight = std::exp(weight - max_score);
        sum += weight;
      }
      const double roundings = 2.0 * (static_cast<double>(width) + 4.0) * max_magnitude +
                               static_cast<double>(num_keys) + 16.0;
      for (size_t d = 0; d < width; ++d) {
        double value = 0.0;
        double magnitude = 0.0;
        for (size_t key = first_key; key < num_keys; ++key) {
          const double weight = weights[key - first_key] / sum;
          const size_t index = key * kv_heads * width + column + d;
          value += weight * static_cast<double>(input.values[index]);
          magnitude += weight * static_cast<double>(input.value_magnitudes[index]);
        }
        result.values.push_back(value);
        result.tolerances.push_back((roundings * kF32Rounding + input.weight_rounding) * magnitude);
      }
    }
  }
  return result;
}

}  // namespace nightshift::naive
