#include "kernels/cpu/cpu_ops.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <cstring>

#include "kernels/base/check.h"
#include "kernels/convert.h"
#include "kernels/cpu/attention.h"
#include "kernels/cpu/bf16_dots.h"
#include "kernels/cpu/byte_tile.h"
#include "kernels/cpu/gather_row.h"
#include "kernels/cpu/head_reduce.h"
#include "kernels/cpu/matmul.h"
#include "kernels/cpu/packed_store.h"
#include "kernels/cpu/row_ops.h"
#include "kernels/group_format.h"

namespace nightshift::cpu {
namespace {

// Elements (or multiply-adds) worth one task: about 10 us, well above the cost of waking a thread.
constexpr int64_t kTaskWork = 1 << 16;
// The same for the multiply-adds of a matmul, of which a core does some 100 a ns.
constexpr int64_t kTaskMultiplyAdds = 1 << 20;
// Rows that a matmul packs at one time: its scratch is as many rows of inputs.
constexpr int64_t kMaxMatMulRows = 512;

void CheckSameShape(MatrixView a, MatrixView b) {
  CHECK_EQ(a.rows, b.rows);
  CHECK_EQ(a.columns, b.columns);
}

// One row of a ragged batch: the span's row-th.
struct SpanRow {
  const AttentionSpan* span = nullptr;
  int64_t row = 0;
};

// The rows of all spans, which lie in a matrix of `num_rows` rows.
std::vector<SpanRow> ListRows(std::span<const AttentionSpan> spans, int64_t num_rows) {
  std::vector<SpanRow> rows;
  for (const AttentionSpan& span : spans) {
    const int64_t pages = static_cast<int64_t>(span.pages.size());
    CHECK_LE(span.first_position + span.num_rows, pages * kPagePositions);
    CHECK_LE(span.first_row + span.num_rows, num_rows);
    for (int64_t row = 0; row < span.num_rows; ++row) {
      rows.push_back({&span, row});
    }
  }
  return rows;
}

}  // namespace

void Scratch::Free::operator()(float* memory) const {
  std::free(memory);
}

float* Scratch::Get(int64_t count) {
  if (count > capacity_) {
    const auto bytes = static_cast<size_t>(RoundUp(count * 4, 64));
    memory_.reset(static_cast<float*>(std::aligned_alloc(64, bytes)));
    CHECK(memory_ != nullptr);
    std::memset(memory_.get(), 0, bytes);
    capacity_ = count;
  }
  return memory_.get();
}

CpuOps::CpuOps(ComputeType compute_type, WorkerPool& pool)
    : compute_type_(compute_type),
      has_bf16_dots_(compute_type != ComputeType::kF32 && HasBF16Dots()),
      has_byte_dots_(compute_type == ComputeType::kInt8 && HasByteDots()),
      pool_(pool),
      worker_scratch_(static_cast<size_t>(pool.num_threads())) {}

template <typename Body>
void CpuOps::ForEachRow(int64_t rows, int64_t row_work, const Body& body) {
  const int64_t task_rows = std::max<int64_t>(1, kTaskWork / std::max<int64_t>(1, row_work));
  pool_.ParallelFor((rows + task_rows - 1) / task_rows, [&](int64_t task, int worker) {
    const int64_t last = std::min(rows, (task + 1) * task_rows);
    for (int64_t row = task * task_rows; row < last; ++row) {
      body(row, worker);
    }
  });
}

void CpuOps::EmbeddingGather(const WeightView& table, std::span<const int32_t> ids, bool accumulate,
                             MatrixView out) {
  CHECK_EQ(out.rows, static_cast<int64_t>(ids.size()));
  CHECK_EQ(out.columns, table.inputs);
  // Each pair of k is a cache line of its own: dearer than reading a row.
  ForEachRow(out.rows, out.columns * 4, [&](int64_t row, int) {
    GatherRow({.table = table,
               .id = ids[static_cast<size_t>(row)],
               .rounds = compute_type_ != ComputeType::kF32,
               .accumulate = accumulate,
               .out = out.row(row)});
  });
}

void CpuOps::RmsNorm(MatrixView x, const float* weight, float epsilon, MatrixView out) {
  CheckSameShape(x, out);
  ForEachRow(x.rows, x.columns, [&](int64_t row, int) {
    RmsNormRow(x.row(row), weight, epsilon, x.columns, out.row(row));
  });
}

void CpuOps::LayerNorm(MatrixView x, const float* weight, const float* bias, float epsilon,
                       MatrixView out) {
  CheckSameShape(x, out);
  ForEachRow(x.rows, x.columns, [&](int64_t row, int) {
    LayerNormRow(x.row(row), weight, bias, epsilon, x.columns, out.row(row));
  });
}

void CpuOps::HeadRmsNorm(MatrixView x, int64_t head_width, const float* weight, float epsilon) {
  CHECK_EQ(x.columns % head_width, 0);
  ForEachRow(x.rows, x.columns, [&](int64_t row, int) {
    for (int64_t column = 0; column < x.columns; column += head_width) {
      float* head = x.row(row) + column;
      RmsNormRow(head, weight, epsilon, head_width, head);
    }
  });
}

TileKind CpuOps::TileKindOf(DType weight_type) const {
  if (weight_type == DType::kF32) return TileKind::kF32;
  if (weight_type == DType::kF16) return TileKind::kF16;
  if (const std::optional<GroupFormat> format = GroupFormatOf(weight_type)) {
    if (compute_type_ == ComputeType::kInt8) {
      if (has_byte_dots_) {
        return format->group == 32 ? TileKind::kByteDots32 : TileKind::kByteDots64;
      }
      return format->group == 32 ? TileKind::kBytes32 : TileKind::kBytes64;
    }
    if (has_bf16_dots_) return TileKind::kGroupsDots;
    return compute_type_ == ComputeType::kBF16 ? TileKind::kGroupsRounded : TileKind::kGroups;
  }
  return has_bf16_dots_ ? TileKind::kBF16Dots : TileKind::kBF16;
}

void CpuOps::PackRows(const PackArgs& args) {
  const RowTiles tiles = CutIntoTiles(args.kind, args.x.rows, args.x.columns);
  ForEachRow(tiles.count, args.x.columns * args.x.rows / tiles.count,
             [&](int64_t tile, int) { PackTile(args, tiles, tile); });
}

const std::byte* CpuOps::PackInputs(MatrixView x, TileKind kind, bool same_x) {
  if (same_x) {
    CHECK(x.data == packed_x_.data);
    CheckSameShape(x, packed_x_);
  }
  auto* packed =
      reinterpret_cast<std::byte*>(packed_rows_.Get(PackedBytes(kind, x.rows, x.columns) / 4));
  if (same_x && packed_kind_ == kind) {
    return packed;
  }
  packed_x_ = x;
  packed_kind_ = kind;
  for (int64_t first = 0; first < x.rows; first += kMaxMatMulRows) {
    PackRows({.x = x.Rows(first, std::min(kMaxMatMulRows, x.rows - first)),
              .kind = kind,
              .rounds = compute_type_ != ComputeType::kF32,
              .packed = packed + PackedBytes(kind, first, x.columns)});
  }
  return packed;
}

void CpuOps::MultiplyRowBlock(const MatMulArgs& args, const std::byte* packed, MatrixView out) {
  const WeightShardView& weight = args.weight;
  const TileKind kind = TileKindOf(weight.dtype);
  const int64_t inputs = args.x.columns;
  const RowTiles tiles = CutIntoTiles(kind, out.rows, inputs);
  const int64_t panels = weight.panels();
  const int64_t panel_bytes = PanelBytes(weight.dtype, inputs);
  const std::optional<GroupFormat> format = GroupFormatOf(weight.dtype);
  const PanelPlanes planes = format ? PlanesOf(weight.dtype, inputs) : PanelPlanes();
  // A unit is some tiles by some panels: the more of each, the less often are panels and packed
  // rows read; few enough for all threads. Tiles are the outer order.
  const int64_t wanted_units = 4 * pool_.num_threads();
  const int64_t unit_panels = tiles.are_few || tiles.take_codes
                                  ? 1
                                  : std::clamp<int64_t>(panels / wanted_units, 1, kMaxBlockPanels);
  const int64_t groups = (panels + unit_panels - 1) / unit_panels;
  const int64_t least_parts = (tiles.count * kMaxTileRows + kMaxBlockRows - 1) / kMaxBlockRows;
  const int64_t parts = std::max(least_parts, std::min(wanted_units / groups, tiles.count));
  const int64_t units = groups * parts;
  // Reading a weight costs as much as four rows' multiply-adds.
  const int64_t unit_work =
      unit_panels * kPanelOutputs * inputs * std::max<int64_t>(4, out.rows / parts);
  const int64_t task_units = std::max<int64_t>(1, kTaskMultiplyAdds / unit_work);
  pool_.ParallelFor((units + task_units - 1) / task_units, [&](int64_t task, int worker) {
    float* scratch = worker_scratch_[static_cast<size_t>(worker)].Get(kBlockScratch);
    const int64_t last = std::min(units, (task + 1) * task_units);
    for (int64_t unit = task * task_units; unit < last; ++unit) {
      const int64_t part = unit / groups;
      const int64_t first_panel = unit % groups * unit_panels;
      const int64_t num_panels = std::min(unit_panels, panels - first_panel);
      const int64_t first_output = first_panel * kPanelOutputs;
      const int64_t outputs = std::min(num_panels * kPanelOutputs, weight.outputs - first_output);
      const int64_t column = weight.first_output + first_output;
      MultiplyBlock({.kind = kind,
                     .packed = packed,
                     .inputs = inputs,
                     .tiles = tiles,
                     .first_tile = part * tiles.count / parts,
                     .last_tile = (part + 1) * tiles.count / parts,
                     .panels = weight.data + first_panel * panel_bytes,
                     .format = format.value_or(GroupFormat()),
                     .planes = planes,
                     .num_panels = num_panels,
                     .panel_bytes = panel_bytes,
                     .bias = args.bias == nullptr ? nullptr : args.bias + column,
                     .out = out.Columns(column, outputs),
                     .accumulate = args.accumulate,
                     .scratch = scratch});
    }
  });
}

void CpuOps::MatMul(const MatMulArgs& args) {
  const WeightShardView& weight = args.weight;
  CHECK(IsReadByOps(weight.dtype));
  CHECK(compute_type_ == ComputeType::kF32 || weight.dtype == DType::kBF16 ||
        !IsFloat(weight.dtype));
  CHECK_EQ(args.x.columns, weight.inputs);
  CHECK_EQ(args.x.rows, args.out.rows);
  CHECK_EQ(weight.first_output % kPanelOutputs, 0);
  CHECK_LE(weight.first_output + weight.outputs, args.out.columns);
  const TileKind kind = TileKindOf(weight.dtype);
  const std::byte* packed = PackInputs(args.x, kind, args.same_x);
  for (int64_t first = 0; first < args.x.rows; first += kMaxMatMulRows) {
    const int64_t rows = std::min(kMaxMatMulRows, args.x.rows - first);
    MultiplyRowBlock(args, packed + PackedBytes(kind, first, args.x.columns),
                     args.out.Rows(first, rows));
  }
}

const float* CpuOps::Rotations(const RopeArgs& args) {
  const auto pairs = static_cast<int64_t>(args.inverse_frequencies.size());
  if (rotation_magnitude_ == args.magnitude &&
      std::ranges::equal(rotation_positions_, args.positions) &&
      std::ranges::equal(rotation_frequencies_, args.inverse_frequencies)) {
    return rotations_.data();
  }
  rotation_magnitude_ = args.magnitude;
  rotation_positions_.assign(args.positions.begin(), args.positions.end());
  rotation_frequencies_.assign(args.inverse_frequencies.begin(), args.inverse_frequencies.end());
  rotations_.resize(args.positions.size() * static_cast<size_t>(2 * pairs));
  ForEachRow(args.x.rows, pairs * 32, [&](int64_t row, int) {
    const auto position = static_cast<float>(args.positions[static_cast<size_t>(row)]);
    float* cosines = rotations_.data() + row * 2 * pairs;
    for (int64_t i = 0; i < pairs; ++i) {
      // The angle is rounded to f32 as in the models' reference; its cosine is then exact.
      const float angle = position * args.inverse_frequencies[static_cast<size_t>(i)];
      cosines[i] = static_cast<float>(std::cos(static_cast<double>(angle))) * args.magnitude;
      cosines[pairs + i] =
          static_cast<float>(std::sin(static_cast<double>(angle))) * args.magnitude;
    }
  });
  return rotations_.data();
}

void CpuOps::Rope(const RopeArgs& args) {
  const auto pairs = static_cast<int64_t>(args.inverse_frequencies.size());
  CHECK_EQ(args.x.rows, static_cast<int64_t>(args.positions.size()));
  CHECK_EQ(args.x.columns, args.heads * args.head_width);
  CHECK_LE(2 * pairs, args.head_width);
  const float* rotations = Rotations(args);
  ForEachRow(args.x.rows, args.x.columns, [&](int64_t row, int) {
    const float* cosines = rotations + row * 2 * pairs;
    for (int64_t head = 0; head < args.heads; ++head) {
      RotateHead(args.x.row(row) + head * args.head_width, cosines, cosines + pairs, pairs);
    }
  });
}

// Codes of neighbouring positions share bytes: a page's rows are one thread's.
void CpuOps::StorePackedKv(const StoreKvArgs& args) {
  std::vector<PackedRows> runs;
  for (const AttentionSpan& span : args.spans) {
    for (int64_t done = 0; done < span.num_rows;) {
      const int64_t position = span.first_position + done;
      const int64_t slot = position % kPagePositions;
      const int64_t rows = std::min(kPagePositions - slot, span.num_rows - done);
      runs.push_back({.layout = args.layout,
                      .k = args.k.Rows(span.first_row + done, rows),
                      .v = args.v.Rows(span.first_row + done, rows),
                      .first_slot = slot,
                      .page = span.pages[static_cast<size_t>(position / kPagePositions)]});
      done += rows;
    }
  }
  const int64_t mean_rows = args.k.rows / std::max<int64_t>(1, static_cast<int64_t>(runs.size()));
  ForEachRow(static_cast<int64_t>(runs.size()), 8 * args.k.columns * mean_rows,
             [&](int64_t index, int) { StorePackedRows(runs[static_cast<size_t>(index)]); });
}

void CpuOps::StoreKv(const StoreKvArgs& args) {
  const KvPageLayout& layout = args.layout;
  CHECK(IsKvType(layout.dtype, compute_type_));
  CHECK_EQ(args.k.columns, layout.kv_heads * layout.head_width);
  CheckSameShape(args.k, args.v);
  const std::vector<SpanRow> rows = ListRows(args.spans, args.k.rows);
  if (layout.is_packed()) {
    StorePackedKv(args);
    return;
  }
  const int64_t element_bytes = FloatBytes(layout.dtype);
  ForEachRow(static_cast<int64_t>(rows.size()), 2 * args.k.columns, [&](int64_t index, int) {
    const auto& [span, row] = rows[static_cast<size_t>(index)];
    const int64_t position = span->first_position + row;
    std::byte* page = span->pages[static_cast<size_t>(position / kPagePositions)];
    for (int64_t head = 0; head < layout.kv_heads; ++head) {
      std::byte* target = page + layout.element(head, position % kPagePositions) * element_bytes;
      const int64_t column = head * layout.head_width;
      RoundFromF32(args.k.row(span->first_row + row) + column, layout.head_width, layout.dtype,
                   target);
      RoundFromF32(args.v.row(span->first_row + row) + column, layout.head_width, layout.dtype,
                   target + layout.plane_bytes());
    }
  });
}

void CpuOps::Attention(const AttentionArgs& args) {
  const KvPageLayout& layout = args.layout;
  CHECK(IsKvType(layout.dtype, compute_type_));
  CHECK_GE(layout.kv_heads, 1);
  CHECK_EQ(args.num_heads % layout.kv_heads, 0);
  CHECK_GE(args.window, 0);
  CHECK(args.sparse_fraction > 0.0 && args.sparse_fraction <= 1.0);
  CHECK_EQ(args.q.columns, args.num_heads * layout.head_width);
  CheckSameShape(args.q, args.out);
  for (const AttentionSpan& span : args.spans) {
    const int64_t pages = static_cast<int64_t>(span.pages.size());
    CHECK_LE(span.first_position + span.num_rows, pages * kPagePositions);
    CHECK_LE(span.first_row + span.num_rows, args.q.rows);
  }
  const bool uses_dots = has_bf16_dots_ && layout.dtype != DType::kF32;
  const std::vector<AttentionTask> tasks = CutAttention(args, uses_dots, pool_.num_threads());
  pool_.ParallelFor(static_cast<int64_t>(tasks.size()), [&](int64_t index, int worker) {
    AttentionTask task = tasks[static_cast<size_t>(index)];
    task.scratch = worker_scratch_[static_cast<size_t>(worker)].Get(AttentionScratchFloats(task));
    AttendTask(task);
  });
}

void CpuOps::Activate(Activation activation, MatrixView x) {
  ForEachRow(x.rows, x.columns * 4,
             [&](int64_t row, int) { ActivateRow(activation, x.row(row), x.columns); });
}

void CpuOps::GatedActivate(Activation activation, MatrixView gate, MatrixView up) {
  CheckSameShape(gate, up);
  ForEachRow(gate.rows, gate.columns * 4, [&](int64_t row, int) {
    GatedActivateRow(activation, gate.row(row), up.row(row), gate.columns);
  });
}

void CpuOps::Scale(float factor, MatrixView x) {
  ForEachRow(x.rows, x.columns, [&](int64_t row, int) { ScaleRow(factor, x.columns, x.row(row)); });
}

void CpuOps::AddScaled(MatrixView x, float factor, MatrixView out) {
  CheckSameShape(x, out);
  ForEachRow(x.rows, x.columns,
             [&](int64_t row, int) { AddScaledRow(x.row(row), factor, x.columns, out.row(row)); });
}

void CpuOps::SoftCap(float cap, MatrixView x) {
  CHECK(cap > 0.0F);
  ForEachRow(x.rows, x.columns * 4,
             [&](int64_t row, int) { SoftCapRow(cap, x.columns, x.row(row)); });
}

void CpuOps::AddScaledRows(MatrixView x, std::span<const int64_t> rows,
                           std::span<const float> factors, MatrixView out) {
  CHECK_EQ(x.rows, static_cast<int64_t>(rows.size()));
  CHECK_EQ(rows.size(), factors.size());
  CHECK_EQ(x.columns, out.columns);
  ForEachRow(x.rows, x.columns, [&](int64_t row, int) {
    const size_t index = static_cast<size_t>(row);
    CHECK(rows[index] >= 0 && rows[index] < out.rows);
    AddScaledRow(x.row(row), factors[index], x.columns, out.row(rows[index]));
  });
}

void CpuOps::GatherRows(MatrixView x, std::span<const int64_t> rows, MatrixView out) {
  CHECK_EQ(out.rows, static_cast<int64_t>(rows.size()));
  CHECK_EQ(out.columns, x.columns);
  ForEachRow(out.rows, out.columns, [&](int64_t row, int) {
    const int64_t source = rows[static_cast<size_t>(row)];
    CHECK(source >= 0 && source < x.rows);
    std::memcpy(out.row(row), x.row(source), static_cast<size_t>(x.columns) * sizeof(float));
  });
}

void CpuOps::HeadReduce(const HeadReduceArgs& args) {
  const MatrixView& logits = args.logits;
  const int64_t num_requests = static_cast<int64_t>(args.requests.size());
  CHECK_EQ(num_requests, static_cast<int64_t>(args.states.size()));
  ForEachRow(num_requests, logits.columns * 4, [&](int64_t index, int) {
    const HeadRequest& request = args.requests[static_cast<size_t>(index)];
    CHECK_GE(request.num_candidates, 1);
    CHECK(request.row >= 0 && request.row < logits.rows);
    ReduceHeadRow(logits.row(request.row), logits.columns, args.first_token, request,
                  args.states[static_cast<size_t>(index)]);
  });
}

}  // namespace nightshift::cpu
