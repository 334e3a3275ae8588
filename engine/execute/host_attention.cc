#include "engine/execute/host_attention.h"

#include "engine/model/scratch.h"
#include "kernels/base/status_macros.h"

namespace nightshift {
namespace {

int64_t TotalRows(std::span<const AttentionSpan> spans) {
  int64_t rows = 0;
  for (const AttentionSpan& span : spans) {
    rows += span.num_rows;
  }
  return rows;
}

int64_t StrideBytes(int64_t columns) {
  return RowStride(columns) * FloatBytes(DType::kF32);
}

std::span<std::byte> BytesOf(MatrixView rows, int64_t first, int64_t count) {
  const MatrixView part = rows.Rows(first, count);
  return {reinterpret_cast<std::byte*>(part.data),
          static_cast<size_t>(count * part.stride * FloatBytes(DType::kF32))};
}

// Calls copy(first row, rows) for each run of rows that follow each other.
template <typename Copy>
absl::Status ForEachRun(std::span<const AttentionSpan> spans, const Copy& copy) {
  for (size_t i = 0; i < spans.size();) {
    const int64_t first = spans[i].first_row;
    int64_t end = first;
    while (i < spans.size() && spans[i].first_row == end) {
      end += spans[i].num_rows;
      ++i;
    }
    RETURN_IF_ERROR(copy(first, end - first));
  }
  return absl::OkStatus();
}

}  // namespace

int64_t HostAttention::Bytes(const ModelConfig& config, int64_t max_batch_rows, size_t num_slots) {
  return static_cast<int64_t>(num_slots) * AttentionRows::Floats(config, max_batch_rows) *
         FloatBytes(DType::kF32);
}

absl::StatusOr<std::unique_ptr<HostAttention>> HostAttention::Create(
    const ModelConfig& config, int64_t max_batch_rows, size_t num_slots, Device& device,
    ComputeType compute_type, Pool& device_pool, Pool& host_pool) {
  std::unique_ptr<HostAttention> attention(
      new HostAttention(config, max_batch_rows, device, compute_type));
  const int64_t bytes = Bytes(config, max_batch_rows, num_slots);
  ASSIGN_OR_RETURN(attention->device_slots_,
                   device_pool.Reserve(bytes, "queries that go to the host"));
  ASSIGN_OR_RETURN(attention->host_slots_, host_pool.Reserve(bytes, "queries from the device"));
  return attention;
}

AttentionRows HostAttention::RowsIn(const Buffer& memory, int64_t rows, size_t slot) const {
  const size_t slot_floats = static_cast<size_t>(AttentionRows::Floats(config_, max_batch_rows_));
  const std::span<float> floats(reinterpret_cast<float*>(memory.bytes().data()),
                                memory.bytes().size() / sizeof(float));
  return AttentionRows::Carve(config_, rows, floats.subspan(slot * slot_floats, slot_floats));
}

AttentionRows HostAttention::OnDevice(int64_t rows, size_t slot) const {
  return RowsIn(device_slots_, rows, slot);
}

absl::Status HostAttention::DownloadQueries(const LayerBatch& batch, int64_t rows, size_t slot) {
  const AttentionRows from = RowsIn(device_slots_, rows, slot);
  const AttentionRows to = RowsIn(host_slots_, rows, slot);
  return ForEachRun(batch.spans, [&](int64_t first, int64_t count) -> absl::Status {
    RETURN_IF_ERROR(device_.Download(BytesOf(from.q, first, count), BytesOf(to.q, first, count)));
    RETURN_IF_ERROR(device_.Download(BytesOf(from.k, first, count), BytesOf(to.k, first, count)));
    return device_.Download(BytesOf(from.v, first, count), BytesOf(to.v, first, count));
  });
}

absl::Status HostAttention::Attend(const Forward& forward, const LayerBatch& batch, int64_t rows,
                                   size_t slot) {
  forward.Mix(batch, RowsIn(host_slots_, rows, slot), host_ops_);
  return absl::OkStatus();
}

absl::Status HostAttention::UploadMixed(const LayerBatch& batch, int64_t rows, size_t slot) {
  const MatrixView from = RowsIn(host_slots_, rows, slot).mixed;
  const MatrixView to = RowsIn(device_slots_, rows, slot).mixed;
  return ForEachRun(batch.spans, [&](int64_t first, int64_t count) {
    return device_.Upload(BytesOf(from, first, count), BytesOf(to, first, count));
  });
}

int64_t HostAttention::QueryBytes(const ModelConfig& config, std::span<const AttentionSpan> spans) {
  return TotalRows(spans) * (StrideBytes(config.num_heads * config.head_width) +
                             2 * StrideBytes(config.num_kv_heads * config.head_width));
}

int64_t HostAttention::MixedBytes(const ModelConfig& config, std::span<const AttentionSpan> spans) {
  return TotalRows(spans) * StrideBytes(config.num_heads * config.head_width);
}

}  // namespace nightshift
