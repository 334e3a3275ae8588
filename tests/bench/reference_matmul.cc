#include "tests/bench/reference_matmul.h"

#include <algorithm>
#include <cstddef>
#include <memory>
#include <unordered_map>
#include <utility>
#include <vector>

#include <cblas.h>
#include <dnnl.hpp>

namespace nightshift {
namespace {

using Tag = dnnl::memory::format_tag;

// Zeros multiply as fast as other numbers.
dnnl::memory ZeroMemory(const dnnl::memory::desc& desc, const dnnl::engine& engine) {
  dnnl::memory memory(desc, engine);
  auto* data = static_cast<std::byte*>(memory.get_data_handle());
  std::fill_n(data, desc.get_size(), std::byte{0});
  return memory;
}

}  // namespace

std::function<void()> OneDnnMatMul(const MatMulShape& shape, bool is_bf16) {
  const auto type = is_bf16 ? dnnl::memory::data_type::bf16 : dnnl::memory::data_type::f32;
  const dnnl::engine engine(dnnl::engine::kind::cpu, 0);
  const dnnl::memory::desc x({shape.rows, shape.inputs}, type, Tag::ab);
  const dnnl::memory::desc weight({shape.inputs, shape.outputs}, type, Tag::any);
  const dnnl::memory::desc out({shape.rows, shape.outputs}, dnnl::memory::data_type::f32, Tag::ab);
  const dnnl::matmul::primitive_desc description({x, weight, out}, engine, /*allow_empty=*/true);
  if (!description) return {};
  const dnnl::matmul primitive(description);
  const dnnl::stream stream(engine);
  const std::unordered_map<int, dnnl::memory> arguments = {
      {DNNL_ARG_SRC, ZeroMemory(x, engine)},
      {DNNL_ARG_WEIGHTS, ZeroMemory(description.weights_desc(), engine)},
      {DNNL_ARG_DST, ZeroMemory(out, engine)}};
  return [=]() {
    dnnl::stream lane = stream;
    primitive.execute(lane, arguments);
    lane.wait();
  };
}

std::function<void()> OpenBlasMatMul(const MatMulShape& shape) {
  struct Matrices {
    std::vector<float> x;
    std::vector<float> weight;
    std::vector<float> out;
  };
  const auto size = [](int64_t rows, int64_t columns) { return static_cast<size_t>(rows * columns); };
  // Shared because a std::function is copied.
  const auto matrices = std::make_shared<Matrices>(
      Matrices{std::vector<float>(size(shape.rows, shape.inputs), 0.5F),
               std::vector<float>(size(shape.outputs, shape.inputs), 0.5F),
               std::vector<float>(size(shape.rows, shape.outputs))});
  return [shape, matrices]() {
    const auto m = static_cast<blasint>(shape.rows);
    const auto n = static_cast<blasint>(shape.outputs);
    const auto k = static_cast<blasint>(shape.inputs);
    cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasTrans, m, n, k, 1.0F, matrices->x.data(), k,
                matrices->weight.data(), k, 0.0F, matrices->out.data(), n);
  };
}

}  // namespace nightshift
