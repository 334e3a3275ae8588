// What the cases of tests/bench/kernels share: memory, the machine's roofs, timing and printing.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "kernels/base/worker_pool.h"
#include "kernels/device.h"
#include "kernels/tensor_view.h"

namespace nightshift {

struct KernelBenchOptions {
  int threads = static_cast<int>(std::max(1U, std::thread::hardware_concurrency()));
  std::string target;  // empty: the machine's best
  int64_t rows = 0;    // of matmuls; 0: the usual ones
  std::string only;    // cases whose name contains it
  bool is_long = false;
};

// Zero bytes in huge pages where there are some, like the engine's pools; touched.
class Bytes {
 public:
  explicit Bytes(int64_t count);
  std::byte* data() const { return static_cast<std::byte*>(memory_.get()); }
  float* floats() const { return static_cast<float*>(memory_.get()); }

 private:
  struct Free {
    void operator()(void* memory) const { std::free(memory); }
  };
  std::unique_ptr<void, Free> memory_;
};

struct Matrix {
  Matrix(int64_t rows, int64_t columns)
      : bytes(rows * columns * 4), view{bytes.floats(), rows, columns, columns} {}
  Bytes bytes;
  MatrixView view;
};

// What an op does in one call.
struct Work {
  double flops = 0;
  double bytes = 0;
};

// A rival of a case and what it amounts to: `amount` flops or bytes over its seconds.
struct Reference {
  std::string name;
  std::function<void()> run;
  double amount = 0;
  bool is_bytes = false;
};

class KernelBench {
 public:
  explicit KernelBench(const KernelBenchOptions& options);

  Ops& ops(ComputeType compute) { return device_->ops(compute); }
  const KernelBenchOptions& options() const { return options_; }
  bool Wants(const std::string& name) const;

  // Multiply-adds at their fastest; of the bf16 compute type where there are dots.
  Reference Peak(ComputeType compute);
  // Reads of more memory than the caches hold.
  Reference Bandwidth();
  // A copy of as much, its reads and writes.
  Reference Copy();

  // Prints ours beside each reference.
  void Compare(const std::string& name, const std::function<void()>& ours, const Work& work,
               const std::vector<Reference>& references);
  // The same beside the roof: the lower of the bandwidth and of 0.8 of the peak at as many flops a
  // byte; and beside the bandwidth.
  void CompareWithRoof(const std::string& name, const std::function<void()>& ours, const Work& work,
                       ComputeType compute);
  // Prints how many times faster all threads are than one; ratio 1 is as many times as threads.
  void CompareThreads(const std::string& name, const std::function<void(Ops&)>& ours,
                      ComputeType compute);

 private:
  struct Line {
    double value = 0;
    std::string unit;
    std::string reference;
    double reference_value = 0;
    double ratio = 0;
  };
  void Print(const std::string& name, const Line& line) const;
  std::vector<double> Time(const std::vector<std::function<void()>>& functions) const;
  std::byte* Memory();

  const KernelBenchOptions options_;
  const std::string target_;
  WorkerPool pool_;
  std::unique_ptr<Device> device_;
  std::optional<Bytes> memory_;
};

// The cases of one kind each, at shapes of real models.
void RunMatMulCases(KernelBench& bench);
void RunAttentionCases(KernelBench& bench);
void RunRowCases(KernelBench& bench);

}  // namespace nightshift
