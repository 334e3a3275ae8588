#include "engine/model/random_pack.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "absl/strings/match.h"

#include "engine/model/pack_writer.h"
#include "engine/model/partial_folder.h"
#include "engine/model/stored_panel.h"
#include "kernels/base/check.h"
#include "kernels/base/status_macros.h"
#include "kernels/convert.h"
#include "kernels/group_format.h"
#include "kernels/panel_layout.h"

namespace nightshift {
namespace {

constexpr uint64_t kGamma = 0x9E3779B97F4A7C15;  // SplitMix64's

// SplitMix64 (Steele, Lea, Flood 2014), its n-th output: a hash of a counter.
uint64_t Hash(uint64_t key, uint64_t n) {
  uint64_t value = key + (n + 1) * kGamma;
  value = (value ^ (value >> 30)) * 0xBF58476D1CE4E5B9;
  value = (value ^ (value >> 27)) * 0x94D049BB133111EB;
  return value ^ (value >> 31);
}

// Sign and fraction of every number in eight bytes, and its exponent.
struct NumberBits {
  uint64_t random = 0;
  uint64_t exponent = 0;
};

NumberBits BitsOf(DType dtype, int exponent) {
  if (GroupFormatOf(dtype)) {
    return {~uint64_t{0}, 0};
  }
  const uint64_t biased = static_cast<uint64_t>(exponent + 127);
  return dtype == DType::kF32 ? NumberBits{0x807FFFFF807FFFFF, biased << 23 | biased << (23 + 32)}
                              : NumberBits{0x807F807F807F807F, (biased << 7) * 0x0001000100010001};
}

// The exponent e at which numbers from 2^e to 2^(e+1), evenly spread, have a mean square next to
// 1 / inputs: it is 7/3 of 4^e.
int ExponentFor(int64_t inputs) {
  return static_cast<int>(std::lround(0.5 * std::log2(3.0 / (7.0 * static_cast<double>(inputs)))));
}

// Random numbers of one tensor, one after another.
class NumberStream {
 public:
  NumberStream(uint64_t key, DType dtype, int exponent)
      : key_(key), bits_(BitsOf(dtype, exponent)) {}

  // The next bytes.size() / 8 words; the size is a multiple of 8.
  void Fill(std::span<std::byte> bytes) {
    std::byte* target = bytes.data();
    const uint64_t end = next_ + bytes.size() / sizeof(uint64_t);
    for (; next_ < end; ++next_, target += sizeof(uint64_t)) {
      const uint64_t word = (Hash(key_, next_) & bits_.random) | bits_.exponent;
      std::memcpy(target, &word, sizeof(word));
    }
  }

 private:
  const uint64_t key_;
  const NumberBits bits_;
  uint64_t next_ = 0;
};

// Zeroes what lies in a panel beyond its rows and inputs; of groups their codes.
void ClearPadding(int64_t rows, int64_t inputs, DType dtype, std::span<std::byte> panel) {
  const int64_t padded = RoundUp(inputs, kInputsMultiple);
  const std::optional<GroupFormat> groups = GroupFormatOf(dtype);
  const auto clear = [&](int64_t n, int64_t k) {
    const size_t element = static_cast<size_t>(PanelOffset(n, k, padded));
    if (groups && groups->bits == 4) {
      panel[element / 2] &= static_cast<std::byte>(k % 2 == 0 ? 0xf0 : 0x0f);
      return;
    }
    const size_t bytes = groups ? 1 : static_cast<size_t>(FloatBytes(dtype));
    std::memset(panel.data() + element * bytes, 0, bytes);
  };
  for (int64_t n = 0; n < kPanelOutputs; ++n) {
    for (int64_t k = n < rows ? inputs : 0; k < padded; ++k) {
      clear(n, k);
    }
  }
}

// Codes whose mean is 0 or the minimum's, and scales and minimums with which evenly spread codes
// have a mean square next to 1 / inputs; each differs from the usual one by up to a quarter.
void ShapeGroups(int64_t rows, int64_t inputs, DType dtype, uint64_t key,
                 std::span<std::byte> panel) {
  const GroupFormat format = *GroupFormatOf(dtype);
  const PanelPlanes planes = PlanesOf(dtype, inputs);
  const float middle = format.bits == 4 ? 7.5F : 127.5F;  // of codes from 0
  const float deviation = format.bits == 8 ? 73.9F : format.has_minimum ? 4.61F : 4.18F;
  const float usual = 1.0F / (deviation * std::sqrt(static_cast<float>(inputs)));
  const auto write = [&](int64_t plane, int64_t index, float value) {
    const uint16_t bits = F32ToF16(value);
    std::memcpy(panel.data() + plane + index * static_cast<int64_t>(sizeof(bits)), &bits,
                sizeof(bits));
  };
  // From -7 to 7, twice 0 in place of -8.
  for (size_t i = 0; format.zero > 0 && i < static_cast<size_t>(planes.scales); ++i) {
    const uint8_t pair = std::to_integer<uint8_t>(panel[i]);
    const int low = pair % 16 == 0 ? 8 : pair % 16;
    const int high = pair / 16 == 0 ? 8 : pair / 16;
    panel[i] = static_cast<std::byte>(low | (high << 4));
  }
  std::memset(panel.data() + planes.scales, 0, panel.size() - static_cast<size_t>(planes.scales));
  const int64_t groups = (planes.padded_inputs + format.group - 1) / format.group;
  for (int64_t i = 0; i < groups * kPanelOutputs; ++i) {
    if (i % kPanelOutputs < rows) {
      const float unit = static_cast<float>(Hash(key, static_cast<uint64_t>(i)) >> 40) * 0x1p-24F;
      const float scale = usual * (0.75F + 0.5F * unit);
      write(planes.scales, i, scale);
      if (format.has_minimum) {
        write(planes.minimums, i, -middle * F16ToF32(F32ToF16(scale)));
      }
    }
  }
}

absl::Status WriteMatrix(const TensorSpec& spec, DType dtype, uint64_t key, PackWriter& writer) {
  const int64_t panel_bytes = StoredPanelBytes(dtype, spec.inputs);
  const int64_t shard_outputs = ShardPanels(dtype, spec.inputs) * kPanelOutputs;
  NumberStream numbers(key, dtype, ExponentFor(spec.inputs));
  std::vector<std::byte> shard;
  writer.BeginTensor(spec, dtype, "");
  for (int64_t first = 0; first < spec.outputs; first += shard_outputs) {
    const int64_t outputs = std::min(shard_outputs, spec.outputs - first);
    const int64_t panels = (outputs + kPanelOutputs - 1) / kPanelOutputs;
    shard.resize(static_cast<size_t>(panels * panel_bytes));
    numbers.Fill(shard);
    for (int64_t index = 0; index < panels; ++index) {
      const int64_t rows = std::min(kPanelOutputs, outputs - index * kPanelOutputs);
      const std::span<std::byte> panel = std::span(shard).subspan(
          static_cast<size_t>(index * panel_bytes), static_cast<size_t>(panel_bytes));
      if (GroupFormatOf(dtype)) {
        ShapeGroups(rows, spec.inputs, dtype,
                    Hash(key, static_cast<uint64_t>(first / kPanelOutputs + index)), panel);
      }
      ClearPadding(rows, spec.inputs, dtype, panel);
    }
    RETURN_IF_ERROR(writer.AppendShard(outputs, shard));
  }
  return absl::OkStatus();
}

absl::Status WriteVector(const TensorSpec& spec, uint64_t key, PackWriter& writer) {
  constexpr int kBiasExponent = -7;
  std::vector<float> values(static_cast<size_t>(RoundUp(spec.outputs, 2)), 1.0F);
  if (absl::EndsWith(spec.name, ".bias")) {
    NumberStream(key, DType::kF32, kBiasExponent).Fill(std::as_writable_bytes(std::span(values)));
  }
  writer.BeginTensor(spec, DType::kF32, "");
  return writer.AppendShard(
      spec.outputs, std::as_bytes(std::span(values).first(static_cast<size_t>(spec.outputs))));
}

int64_t TextBytes(const std::optional<std::string>& text) {
  return text ? static_cast<int64_t>(text->size()) : 0;
}

absl::Status CheckRoom(const RandomPackOptions& options, const std::vector<TensorSpec>& tensors) {
  int64_t bytes = TextBytes(options.tokenizer_json) + TextBytes(options.chat_template);
  int64_t extent_bytes = 0;
  for (const TensorSpec& spec : tensors) {
    extent_bytes += ExtentBytes(spec.layout, options.weights, spec.outputs, spec.inputs);
  }
  bytes += extent_bytes + ManifestRoom(static_cast<int64_t>(tensors.size()), extent_bytes);
  return CheckFreeDisk(options.output, bytes);
}

}  // namespace

absl::StatusOr<PackManifest> WriteRandomPack(const RandomPackOptions& options) {
  CHECK(options.weights == DType::kBF16 || options.weights == DType::kF32 ||
        GroupFormatOf(options.weights).has_value());
  const std::vector<TensorSpec> tensors = TensorsOf(options.shape);
  RETURN_IF_ERROR(CheckRoom(options, tensors));
  ASSIGN_OR_RETURN(const std::unique_ptr<PackWriter> writer, PackWriter::Create(options.output));
  if (options.tokenizer_json) {
    RETURN_IF_ERROR(writer->WriteTokenizerJson(*options.tokenizer_json));
  }
  if (options.chat_template) {
    RETURN_IF_ERROR(writer->WriteChatTemplate(*options.chat_template));
  }
  int64_t done_bytes = 0;
  for (size_t i = 0; i < tensors.size(); ++i) {
    const TensorSpec& spec = tensors[i];
    // Keys are hashes, so that the counters of two tensors share no stretch.
    const uint64_t key = Hash(Hash(options.seed, 0), i);
    RETURN_IF_ERROR(spec.layout == TensorLayout::kVector
                        ? WriteVector(spec, key, *writer)
                        : WriteMatrix(spec, options.weights, key, *writer));
    done_bytes += ExtentBytes(spec.layout, options.weights, spec.outputs, spec.inputs);
    if (options.progress) {
      options.progress(done_bytes);
    }
  }
  PackManifest manifest;
  manifest.model_name = options.model_name.empty() ? options.shape.name : options.model_name;
  manifest.source_format = "random";
  manifest.config = options.shape.config;
  return writer->Finish(std::move(manifest));
}

}  // namespace nightshift
