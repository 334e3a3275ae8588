// AddPromptAttentionProbes and AddDecodeAttentionProbes of compute_probes.h.
#include <algorithm>
#include <memory>

#include "absl/strings/str_cat.h"

#include "engine/policy/compute_probes.h"

namespace nightshift {
namespace {

constexpr int64_t kDecodeBytes = int64_t{32} << 20;  // of keys and values that a call reads
constexpr int64_t kLeastRequests = 8;                // so that all threads have as much to do
constexpr int64_t kMostRequests = 64;
constexpr int64_t kDecodeKvHeads = 8;
constexpr int64_t kPromptKvHeads = 2;
constexpr int64_t kPromptQueries = 4;  // heads of a kv head
constexpr int64_t kMostPromptRows = 2048;
constexpr int64_t kLongPromptRows = 256;  // the last so many of a longer prompt

struct Shape {
  ComputeType compute = ComputeType::kBF16;
  std::optional<DType> kv = {};  // packed
  int64_t kv_heads = 0;
  int64_t head_width = 0;
  int64_t queries = 1;  // heads of a kv head
  int64_t requests = 1;
  int64_t rows = 1;   // of each request
  int64_t first = 0;  // the positions before them
};

DType StoredAs(ComputeType compute, std::optional<DType> kv) {
  return kv.value_or(ComputedDType(compute));
}

class AttentionProbe {
 public:
  AttentionProbe(const ProbeBench& bench, Ops& ops, const Shape& shape)
      : ops_(ops),
        shape_(shape),
        memory_(bench.memory),
        layout_{.dtype = StoredAs(shape.compute, shape.kv),
                .kv_heads = shape.kv_heads,
                .head_width = shape.head_width},
        keys_(shape.first + shape.rows) {
    const int64_t columns = heads() * shape.head_width;
    const int64_t rows = shape.requests * shape.rows;
    auto* scratch = reinterpret_cast<float*>(bench.scratch.data());
    q_ = {scratch, rows, columns, columns};
    out_ = {scratch + rows * columns, rows, columns, columns};
    pages_.resize(static_cast<size_t>(shape.requests * pages_of_request()));
    for (int64_t request = 0; request < shape.requests; ++request) {
      spans_.push_back(
          {.first_row = request * shape.rows,
           .num_rows = shape.rows,
           .first_position = shape.first,
           .pages = std::span(pages_).subspan(static_cast<size_t>(request * pages_of_request()),
                                              static_cast<size_t>(pages_of_request()))});
    }
  }

  void Attend() {
    // Ops take pages that could be written, and write none.
    auto* memory = const_cast<std::byte*>(memory_.data());
    const auto page_bytes = static_cast<size_t>(layout_.page_bytes());
    for (std::byte*& page : pages_) {
      if (offset_ + page_bytes > memory_.size()) {
        offset_ = 0;
      }
      page = memory + offset_;
      offset_ += page_bytes;
    }
    ops_.Attention({.q = q_,
                    .out = out_,
                    .layout = layout_,
                    .num_heads = heads(),
                    .scale = 0.1F,
                    .spans = spans_});
  }

  // 4 * head width a query head and pair that causality allows.
  double flops() const {
    const auto rows = static_cast<double>(shape_.rows);
    const double pairs = rows * static_cast<double>(shape_.first) + rows * (rows + 1.0) / 2.0;
    return 4.0 * static_cast<double>(shape_.requests * heads() * shape_.head_width) * pairs;
  }
  // Keys and values that are read.
  double bytes() const {
    return static_cast<double>(shape_.requests * keys_ * 2 * shape_.kv_heads * shape_.head_width) *
           StoredBits(layout_.dtype) / 8.0;
  }

 private:
  int64_t heads() const { return shape_.kv_heads * shape_.queries; }
  int64_t pages_of_request() const { return (keys_ + kPagePositions - 1) / kPagePositions; }

  Ops& ops_;
  const Shape shape_;
  const std::span<const std::byte> memory_;
  const KvPageLayout layout_;
  const int64_t keys_;
  MatrixView q_;
  MatrixView out_;
  std::vector<std::byte*> pages_;
  std::vector<AttentionSpan> spans_;
  size_t offset_ = 0;
};

}  // namespace

void AddPromptAttentionProbes(const ProbeBench& bench, ComputeRates& rates,
                              std::vector<Measurement>& measurements) {
  for (const ComputeType compute : {ComputeType::kBF16, ComputeType::kF32}) {
    for (const int64_t width : {64, 128}) {
      const size_t index = rates.prompt_attention.size();
      rates.prompt_attention.push_back({.compute = compute, .head_width = width, .flops = {}});
      for (const int64_t tokens : {32, 128, 512, 2048, 8192}) {
        if (std::min(tokens, kMostPromptRows) > bench.most_rows) {
          continue;
        }
        const int64_t rows = tokens <= kMostPromptRows ? tokens : kLongPromptRows;
        const auto probe = std::make_shared<AttentionProbe>(bench, bench.device.ops(compute),
                                                            Shape{.compute = compute,
                                                                  .kv_heads = kPromptKvHeads,
                                                                  .head_width = width,
                                                                  .queries = kPromptQueries,
                                                                  .rows = rows,
                                                                  .first = tokens - rows});
        measurements.push_back(
            {.name = absl::StrCat("attention of a prompt of ", tokens, " tokens, ",
                                  ComputeTypeName(compute), ", heads of ", width),
             .work =
                 [probe] {
                   probe->Attend();
                   return probe->flops();
                 },
             .keep =
                 [&rates, index, tokens](double rate, double spread) {
                   rates.prompt_attention[index].flops.points.push_back(
                       {static_cast<double>(tokens), rate, spread});
                 }});
      }
    }
  }
}

void AddDecodeAttentionProbes(const ProbeBench& bench, AttentionBy by, ComputeRates& rates,
                              std::vector<Measurement>& measurements) {
  struct Kind {
    ComputeType compute;
    std::optional<DType> kv;
    std::vector<int64_t> positions;
  };
  // What is packed takes as long a position at each length, but for the ends.
  const std::vector<int64_t> every = {128, 512, 2048, 8192};
  const std::vector<int64_t> some = {512, 4096};
  for (const Kind& kind : {Kind{ComputeType::kBF16, std::nullopt, every},
                           Kind{ComputeType::kF32, std::nullopt, every},
                           Kind{ComputeType::kBF16, DType::kU4G64, some},
                           Kind{ComputeType::kBF16, DType::kU8G64, some},
                           Kind{ComputeType::kF32, DType::kU4G64, some},
                           Kind{ComputeType::kF32, DType::kU8G64, some}}) {
    Ops& ops = by == AttentionBy::kDevice ? bench.device.ops(kind.compute)
                                          : bench.device.host_ops(kind.compute);
    const DType stored = StoredAs(kind.compute, kind.kv);
    for (const int64_t width : {64, 128}) {
      for (const int64_t queries : {1, 4, 8}) {
        const size_t index = rates.decode_attention.size();
        rates.decode_attention.push_back({.compute = kind.compute,
                                          .kv = kind.kv,
                                          .head_width = width,
                                          .queries_per_kv_head = queries,
                                          .bytes = {}});
        for (const int64_t positions : kind.positions) {
          const auto request_bytes =
              static_cast<int64_t>(static_cast<double>(2 * kDecodeKvHeads * width * positions) *
                                   StoredBits(stored) / 8.0);
          const auto probe = std::make_shared<AttentionProbe>(
              bench, ops,
              Shape{.compute = kind.compute,
                    .kv = kind.kv,
                    .kv_heads = kDecodeKvHeads,
                    .head_width = width,
                    .queries = queries,
                    .requests =
                        std::clamp(kDecodeBytes / request_bytes, kLeastRequests, kMostRequests),
                    .first = positions});
          measurements.push_back(
              {.name = absl::StrCat("decode attention over ", positions, " positions of ",
                                    DTypeName(stored), ", ", ComputeTypeName(kind.compute),
                                    ", heads of ", width, ", ", queries, " a kv head"),
               .work =
                   [probe] {
                     probe->Attend();
                     return probe->bytes();
                   },
               .keep =
                   [&rates, index, positions](double rate, double spread) {
                     rates.decode_attention[index].bytes.points.push_back(
                         {static_cast<double>(positions), rate, spread});
                   }});
        }
      }
    }
  }
}

}  // namespace nightshift
