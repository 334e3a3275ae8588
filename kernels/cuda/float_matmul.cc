#include "kernels/cuda/float_matmul.h"

#include <algorithm>
#include <array>

#include "absl/strings/str_cat.h"

#include "kernels/base/check.h"
#include "kernels/base/status_macros.h"
#include "kernels/cuda/float_matmul_kernels.h"

namespace nightshift::cuda {
namespace {

// Algorithms that are asked for, best first: the first that takes all row counts is kept.
constexpr int kAskedAlgorithms = 8;

bool IsSame(MatrixView a, MatrixView b) {
  return a.data == b.data && a.rows == b.rows && a.columns == b.columns && a.stride == b.stride;
}

cudaDataType TypeOf(DType type) {
  return type == DType::kBF16 ? CUDA_R_16BF : CUDA_R_32F;
}

// The descriptions of one product: D = W^T X in columns, which is X W^T in rows.
class Shapes {
 public:
  Shapes(const CublasLibrary& library, DType type, int64_t rows, int64_t outputs, int64_t inputs)
      : library_(library) {
    Keep(library_.create_product(&product_, CUBLAS_COMPUTE_32F, CUDA_R_32F));
    const cublasOperation_t transposed = CUBLAS_OP_T;
    Keep(library_.set_product(product_, CUBLASLT_MATMUL_DESC_TRANSA, &transposed,
                              sizeof(transposed)));
    const auto layout = [&](cublasLtMatrixLayout_t* made, cudaDataType element, int64_t length,
                            int64_t count) {
      Keep(library_.create_layout(made, element, static_cast<uint64_t>(length),
                                  static_cast<uint64_t>(count), length));
    };
    layout(&weights_, TypeOf(type), inputs, outputs);
    layout(&x_, TypeOf(type), inputs, rows);
    layout(&out_, CUDA_R_32F, outputs, rows);
  }
  ~Shapes() {
    library_.destroy_layout(out_);
    library_.destroy_layout(x_);
    library_.destroy_layout(weights_);
    library_.destroy_product(product_);
  }
  Shapes(const Shapes&) = delete;
  Shapes& operator=(const Shapes&) = delete;

  cublasStatus_t status() const { return status_; }
  cublasLtMatmulDesc_t product() const { return product_; }
  cublasLtMatrixLayout_t weights() const { return weights_; }
  cublasLtMatrixLayout_t x() const { return x_; }
  cublasLtMatrixLayout_t out() const { return out_; }

 private:
  void Keep(cublasStatus_t status) {
    if (status_ == CUBLAS_STATUS_SUCCESS) status_ = status;
  }

  const CublasLibrary& library_;
  cublasStatus_t status_ = CUBLAS_STATUS_SUCCESS;
  cublasLtMatmulDesc_t product_ = nullptr;
  cublasLtMatrixLayout_t weights_ = nullptr;
  cublasLtMatrixLayout_t x_ = nullptr;
  cublasLtMatrixLayout_t out_ = nullptr;
};

}  // namespace

absl::StatusOr<std::unique_ptr<FloatMatMul>> FloatMatMul::Create(bool multiplies_bf16) {
  ASSIGN_OR_RETURN(const CublasLibrary library, LoadCublasLibrary());
  std::unique_ptr<FloatMatMul> matmul(new FloatMatMul(library, multiplies_bf16));
  const cublasStatus_t created = library.create(&matmul->handle_);
  if (created != CUBLAS_STATUS_SUCCESS) {
    return absl::InternalError(
        absl::StrCat("create a handle of cuBLASLt: ", library.status_name(created)));
  }
  ASSIGN_OR_RETURN(matmul->inputs_, AllocateDeviceMemory(kInputBytes, "inputs of products"));
  ASSIGN_OR_RETURN(matmul->products_, AllocateDeviceMemory(kProductBytes, "products"));
  ASSIGN_OR_RETURN(matmul->widened_, AllocateDeviceMemory(kWidenedBytes, "widened weights"));
  return matmul;
}

FloatMatMul::~FloatMatMul() {
  library_.destroy(handle_);
}

void FloatMatMul::Note(cublasStatus_t status, DType type, int64_t outputs, int64_t inputs) {
  if (status == CUBLAS_STATUS_SUCCESS || !status_.ok()) return;
  status_ = absl::InternalError(absl::StrCat("multiply by ", DTypeName(type), " weights [", outputs,
                                             ", ", inputs, "]: cuBLASLt says ",
                                             library_.status_name(status)));
}

// Cut by the weights' shape alone, so that each part of them meets one algorithm.
FloatMatMul::Block FloatMatMul::PlanBlocks(ComputeType compute_type,
                                           const WeightShardView& weight) const {
  Block block;
  if (compute_type != ComputeType::kF32) {
    CHECK(weight.dtype == DType::kBF16);
    block.type = multiplies_bf16_ ? DType::kBF16 : DType::kF32;
  }
  block.inputs = weight.padded_inputs();
  const int64_t input_bytes = block.inputs * FloatBytes(block.type);
  block.max_rows =
      std::min(kAlgorithmRows, kInputBytes / input_bytes / kRowMultiple * kRowMultiple);
  CHECK_GT(block.max_rows, 0);
  block.max_outputs = kProductBytes / (kAlgorithmRows * FloatBytes(DType::kF32));
  if (weight.dtype != block.type) {
    block.max_outputs = std::min(block.max_outputs,
                                 kWidenedBytes / input_bytes / kPanelOutputs * kPanelOutputs);
    CHECK_GT(block.max_outputs, 0);
  }
  return block;
}

void FloatMatMul::Multiply(ComputeType compute_type, const MatMulArgs& args, Launcher& launcher) {
  const WeightShardView& weight = args.weight;
  CHECK_EQ(args.x.columns, weight.inputs);
  CHECK_EQ(args.x.rows, args.out.rows);
  Block block = PlanBlocks(compute_type, weight);
  const bool rounds = compute_type != ComputeType::kF32;
  for (int64_t first = 0; first < args.x.rows; first += block.max_rows) {
    const int64_t rows = std::min(block.max_rows, args.x.rows - first);
    const MatrixView x = args.x.Rows(first, rows);
    block.padded_rows = RoundUp(rows, kRowMultiple);
    const bool is_packed = args.same_x && IsSame(packed_x_, x) && packed_type_ == block.type &&
                           packed_rounds_ == rounds;
    if (!is_packed) {
      LaunchPackRows(launcher, {.x = x,
                                .padded_rows = block.padded_rows,
                                .padded_inputs = block.inputs,
                                .rounds = rounds,
                                .target_type = block.type,
                                .target = inputs_.get()});
      packed_x_ = x;
      packed_type_ = block.type;
      packed_rounds_ = rounds;
    }
    MultiplyRows(args, block, args.out.Rows(first, rows), launcher);
  }
}

void FloatMatMul::MultiplyRows(const MatMulArgs& args, const Block& block, MatrixView out,
                               Launcher& launcher) {
  const WeightShardView& weight = args.weight;
  const int64_t row_bytes = block.inputs * FloatBytes(weight.dtype);
  for (int64_t first = 0; first < weight.outputs; first += block.max_outputs) {
    const int64_t outputs = std::min(block.max_outputs, weight.outputs - first);
    // Panels are whole: their padded rows are zeros, and whole tiles of outputs are faster.
    const int64_t padded = RoundUp(outputs, kPanelOutputs);
    const std::byte* rows = weight.data + first * row_bytes;
    if (weight.dtype != block.type) {
      float* widened = reinterpret_cast<float*>(widened_.get());
      LaunchWiden(launcher, rows, weight.dtype, padded, block.inputs, widened);
      rows = widened_.get();
    }
    MultiplyChunk(rows, padded, block, launcher);
    const int64_t column = weight.first_output + first;
    LaunchStoreProduct(launcher, reinterpret_cast<const float*>(products_.get()), padded,
                       args.bias == nullptr ? nullptr : args.bias + column, args.accumulate,
                       out.Columns(column, outputs));
  }
}

void FloatMatMul::MultiplyChunk(const std::byte* weights, int64_t outputs, const Block& block,
                                Launcher& launcher) {
  const Algorithm& algorithm = AlgorithmFor(block.type, outputs, block.inputs);
  if (!algorithm.exists) return;
  const Shapes shapes(library_, block.type, block.padded_rows, outputs, block.inputs);
  const float one = 1.0F;
  const float zero = 0.0F;
  Note(library_.multiply(handle_, shapes.product(), &one, weights, shapes.weights(), inputs_.get(),
                         shapes.x(), &zero, products_.get(), shapes.out(), products_.get(),
                         shapes.out(), &algorithm.algorithm, nullptr, 0, launcher.stream()),
       block.type, outputs, block.inputs);
}

const FloatMatMul::Algorithm& FloatMatMul::AlgorithmFor(DType type, int64_t outputs,
                                                        int64_t inputs) {
  const auto [place, is_new] = algorithms_.try_emplace({type, outputs, inputs});
  if (is_new) place->second = FindAlgorithm(type, outputs, inputs);
  return place->second;
}

FloatMatMul::Algorithm FloatMatMul::FindAlgorithm(DType type, int64_t outputs, int64_t inputs) {
  const Shapes shapes(library_, type, kAlgorithmRows, outputs, inputs);
  cublasLtMatmulPreference_t preference = nullptr;
  library_.create_preference(&preference);
  const uint64_t workspace_bytes = 0;
  const uint32_t reductions = CUBLASLT_REDUCTION_SCHEME_NONE;
  library_.set_preference(preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &workspace_bytes,
                          sizeof(workspace_bytes));
  library_.set_preference(preference, CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, &reductions,
                          sizeof(reductions));
  std::array<cublasLtMatmulHeuristicResult_t, kAskedAlgorithms> results = {};
  int found = 0;
  cublasStatus_t status = shapes.status();
  if (status == CUBLAS_STATUS_SUCCESS) {
    status = library_.find_algorithm(handle_, shapes.product(), shapes.weights(), shapes.x(),
                                     shapes.out(), shapes.out(), preference, kAskedAlgorithms,
                                     results.data(), &found);
  }
  library_.destroy_preference(preference);
  const auto takes_all_rows = [&](const cublasLtMatmulHeuristicResult_t& result) {
    for (int64_t rows = kRowMultiple; rows <= kAlgorithmRows; rows += kRowMultiple) {
      const Shapes some(library_, type, rows, outputs, inputs);
      cublasLtMatmulHeuristicResult_t checked = {};
      const bool is_taken =
          library_.check_algorithm(handle_, some.product(), some.weights(), some.x(), some.out(),
                                   some.out(), &result.algo, &checked) == CUBLAS_STATUS_SUCCESS;
      if (!is_taken || checked.workspaceSize > 0) return false;
    }
    return result.state == CUBLAS_STATUS_SUCCESS;
  };
  const auto end = results.begin() + (status == CUBLAS_STATUS_SUCCESS ? found : 0);
  const auto chosen = std::find_if(results.begin(), end, takes_all_rows);
  if (chosen == end) {
    Note(status == CUBLAS_STATUS_SUCCESS ? CUBLAS_STATUS_NOT_SUPPORTED : status, type, outputs,
         inputs);
    return {};
  }
  return {.algorithm = chosen->algo, .exists = true};
}

}  // namespace nightshift::cuda
