#include "engine/model/weight_import.h"

#include <algorithm>
#include <vector>

#include "absl/strings/str_cat.h"

#include "engine/model/finite_weights.h"
#include "engine/model/gguf_types.h"
#include "engine/model/group_quantiser.h"
#include "engine/model/stored_panel.h"
#include "kernels/base/status_macros.h"
#include "kernels/convert.h"
#include "kernels/panel_layout.h"

namespace nightshift {
namespace {

int64_t ExtentBytesOfTensor(const TensorOrigin& origin) {
  const TensorSpec& spec = origin.spec;
  return ExtentBytes(spec.layout, origin.stored, spec.outputs, spec.inputs);
}

// Source rows that become rows [first, first + count) of the pack, one after another.
absl::Status ReadRows(const TensorOrigin& origin, const TensorSource& source, int64_t first,
                      int64_t count, std::span<std::byte> rows) {
  const bool consecutive = origin.AreConsecutive(first, count);
  if (consecutive) {
    RETURN_IF_ERROR(source.ReadRows(*origin.source, origin.SourceRow(first), rows));
  }
  const size_t row_bytes = static_cast<size_t>(origin.source->row_bytes);
  for (int64_t i = 0; i < count; ++i) {
    const std::span<std::byte> row = rows.subspan(static_cast<size_t>(i) * row_bytes, row_bytes);
    const int64_t source_row = origin.SourceRow(first + i);
    if (!consecutive) {
      RETURN_IF_ERROR(source.ReadRows(*origin.source, source_row, row));
    }
    RETURN_IF_ERROR(CheckFiniteRow(*origin.source, source_row, row));
  }
  return absl::OkStatus();
}

// Blocks of `count` rows to floats, by way of the panel that they would make.
void ExpandBlocks(const GgufType& blocks, std::span<const std::byte> rows, int64_t count,
                  int64_t inputs, std::vector<float>& values) {
  std::vector<std::byte> panel(static_cast<size_t>(StoredPanelBytes(blocks.stored, inputs)));
  PackBlocks(blocks, rows, count, inputs, panel);
  std::vector<float> piece(static_cast<size_t>(kPanelOutputs * kExpandedPieceInputs));
  for (int64_t first = 0; first < inputs; first += kExpandedPieceInputs) {
    const int64_t piece_inputs = ExpandPiece(blocks.stored, panel, inputs, first, piece.data());
    const int64_t end = std::min(first + piece_inputs, inputs);
    for (int64_t n = 0; n < count; ++n) {
      for (int64_t k = first; k < end; ++k) {
        values[static_cast<size_t>(n * inputs + k)] =
            piece[static_cast<size_t>(PanelOffset(n, k - first, piece_inputs))];
      }
    }
  }
}

// Rows [first, first + count) of the pack, as read from the source, to a panel of another type than
// the source's.
absl::Status ConvertRows(const TensorOrigin& origin, int64_t first, int64_t count,
                         std::span<const std::byte> rows, std::span<std::byte> panel) {
  const int64_t inputs = origin.spec.inputs;
  std::vector<float> values(static_cast<size_t>(count * inputs));
  if (origin.source->blocks != nullptr) {
    ExpandBlocks(*origin.source->blocks, rows, count, inputs, values);
  } else {
    WidenToF32(origin.source->dtype, rows.data(), count * inputs, values.data());
  }
  if (!IsFloat(origin.stored)) {
    QuantisePanel(origin.stored, values, count, inputs, panel);
    return absl::OkStatus();
  }
  const size_t row_bytes = static_cast<size_t>(inputs * FloatBytes(origin.stored));
  std::vector<std::byte> rounded(static_cast<size_t>(count) * row_bytes);
  RoundFromF32(values.data(), count * inputs, origin.stored, rounded.data());
  for (int64_t i = 0; i < count; ++i) {
    const std::optional<int64_t> beyond = FirstNonFiniteValue(
        origin.stored, std::span(rounded).subspan(static_cast<size_t>(i) * row_bytes, row_bytes));
    if (beyond) {
      return absl::InvalidArgumentError(absl::StrCat(
          "tensor ", origin.source->name, " row ", origin.SourceRow(first + i), " value ", *beyond,
          " is ", values[static_cast<size_t>(i * inputs + *beyond)], ", which ",
          DTypeName(origin.stored), " cannot hold; import it in another type"));
    }
  }
  PackPanels(rounded.data(), origin.stored, count, inputs, panel.data());
  return absl::OkStatus();
}

// What its blocks, or values of another type, were called in the source.
std::string SourceTypeOf(const TensorOrigin& origin) {
  if (origin.source->blocks != nullptr) {
    return origin.source->blocks->name;
  }
  return origin.stored == origin.source->dtype ? "" : DTypeName(origin.source->dtype);
}

absl::Status WriteMatrix(const TensorOrigin& origin, const TensorSource& source,
                         PackWriter& writer) {
  const TensorSpec& spec = origin.spec;
  const DType dtype = origin.stored;
  const int64_t panel_bytes = StoredPanelBytes(dtype, spec.inputs);
  const int64_t shard_outputs = ShardPanels(dtype, spec.inputs) * kPanelOutputs;
  std::vector<std::byte> rows;
  std::vector<std::byte> shard;
  const GgufType* const blocks = origin.source->blocks;
  writer.BeginTensor(spec, dtype, SourceTypeOf(origin));
  for (int64_t first = 0; first < spec.outputs; first += shard_outputs) {
    const int64_t end = std::min(first + shard_outputs, spec.outputs);
    shard.resize(
        static_cast<size_t>((end - first + kPanelOutputs - 1) / kPanelOutputs * panel_bytes));
    std::span<std::byte> rest(shard);
    for (int64_t row = first; row < end; row += kPanelOutputs) {
      const int64_t count = std::min(kPanelOutputs, end - row);
      rows.resize(static_cast<size_t>(count * origin.source->row_bytes));
      RETURN_IF_ERROR(ReadRows(origin, source, row, count, rows));
      const std::span<std::byte> panel = rest.first(static_cast<size_t>(panel_bytes));
      if (dtype != origin.source->dtype) {
        RETURN_IF_ERROR(ConvertRows(origin, row, count, rows, panel));
      } else if (blocks == nullptr) {
        PackPanels(rows.data(), dtype, count, spec.inputs, panel.data());
      } else {
        PackBlocks(*blocks, rows, count, spec.inputs, panel);
      }
      rest = rest.subspan(static_cast<size_t>(panel_bytes));
    }
    RETURN_IF_ERROR(writer.AppendShard(end - first, shard));
  }
  return absl::OkStatus();
}

// Vectors are kept as F32, which holds every value of the 16-bit types.
absl::Status WriteVector(const TensorOrigin& origin, const TensorSource& source,
                         PackWriter& writer) {
  const TensorSpec& spec = origin.spec;
  std::vector<float> values(static_cast<size_t>(spec.outputs), origin.fill);
  if (origin.source != nullptr) {
    std::vector<std::byte> stored(static_cast<size_t>(origin.source->row_bytes));
    RETURN_IF_ERROR(source.ReadRows(*origin.source, 0, stored));
    RETURN_IF_ERROR(CheckFiniteRow(*origin.source, 0, stored));
    std::vector<float> widened(static_cast<size_t>(origin.source->shape.front()));
    WidenToF32(origin.source->dtype, stored.data(), origin.source->shape.front(), widened.data());
    for (int64_t i = 0; i < spec.outputs; ++i) {
      values[static_cast<size_t>(i)] =
          widened[static_cast<size_t>(origin.SourceRow(i))] + origin.added;
    }
  }
  writer.BeginTensor(spec, DType::kF32, "");
  return writer.AppendShard(spec.outputs, std::as_bytes(std::span(values)));
}

}  // namespace

int64_t ExtentBytesOf(const TensorMap& map) {
  int64_t bytes = 0;
  for (const TensorOrigin& origin : map.tensors) {
    bytes += ExtentBytesOfTensor(origin);
  }
  return bytes;
}

absl::Status WriteTensors(const TensorMap& map, const TensorSource& source, PackWriter& writer,
                          const ImportProgress& progress) {
  int64_t done_bytes = 0;
  for (const TensorOrigin& origin : map.tensors) {
    const bool vector = origin.spec.layout == TensorLayout::kVector;
    RETURN_IF_ERROR(vector ? WriteVector(origin, source, writer)
                           : WriteMatrix(origin, source, writer));
    done_bytes += ExtentBytesOfTensor(origin);
    if (progress) {
      progress(done_bytes);
    }
  }
  return absl::OkStatus();
}

}  // namespace nightshift
