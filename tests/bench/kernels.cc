// Each op of the CPU device against the measured roof of the machine, and matmul against oneDNN and
// OpenBLAS, at shapes of real models. One JSON line a case and reference.
//
// Usage: kernels [--threads N] [--target AVX3_BF16|AVX3|AVX2] [--rows M] [--case TEXT] [--long 1]
// --rows: of matmuls, in place of the usual ones. TEXT: only cases whose name contains it. --long:
// f32 by weights of F16 and BF16 at every shape, too. With one thread times are CPU times.
//
// References: `peak`, multiply-adds or dots in registers; `bandwidth`, reads of memory; `copy`,
// reads and writes of a copy; `roof`, the lower of bandwidth and of 0.8 peak over flops a byte;
// oneDNN, OpenBLAS; `matmul`, our own of as many rows; `1 thread`, the same op.
#include <cstdio>
#include <cstdlib>
#include <string>

#include <hwy/targets.h>
#include <unistd.h>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"

#include "kernels/cpu/target_name.h"
#include "tests/bench/kernel_bench.h"

namespace nightshift {
namespace {

// The other libraries take their threads and their instruction set from the environment, before
// they are loaded: sets it and starts this program again.
void SetEnvironment(const KernelBenchOptions& options, char** argv) {
  if (std::getenv("NIGHTSHIFT_BENCH_STARTED") != nullptr) return;
  const std::string threads = absl::StrCat(options.threads);
  setenv("NIGHTSHIFT_BENCH_STARTED", "1", 1);
  setenv("OMP_NUM_THREADS", threads.c_str(), 1);
  setenv("OPENBLAS_NUM_THREADS", threads.c_str(), 1);
  if (options.target == "AVX2") {
    setenv("ONEDNN_MAX_CPU_ISA", "AVX2", 1);
    setenv("OPENBLAS_CORETYPE", "Haswell", 1);
  } else if (options.target == "AVX3") {
    setenv("ONEDNN_MAX_CPU_ISA", "AVX512_CORE_VNNI", 1);
  }
  execv("/proc/self/exe", argv);
}

// False where the machine does not have the target.
bool ForceTarget(const std::string& target) {
  if (target.empty()) return true;
  const int64_t wanted = target == "AVX3_BF16" ? HWY_AVX3 | HWY_AVX3_DL
                         : target == "AVX3"    ? HWY_AVX3
                         : target == "AVX2"    ? HWY_AVX2
                                               : 0;
  if (wanted == 0 || (hwy::SupportedTargets() & wanted) != wanted) return false;
  hwy::SetSupportedTargetsForTest(wanted);
  return cpu::TargetName() == target;
}

// False when the arguments are not those of the usage.
bool ReadArguments(int argc, char** argv, KernelBenchOptions& options) {
  for (int i = 1; i + 1 < argc; i += 2) {
    const std::string name = argv[i];
    const std::string value = argv[i + 1];
    if (name == "--threads") {
      if (!absl::SimpleAtoi(value, &options.threads) || options.threads < 1) return false;
    } else if (name == "--target") {
      options.target = value;
    } else if (name == "--rows") {
      if (!absl::SimpleAtoi(value, &options.rows) || options.rows < 1) return false;
    } else if (name == "--case") {
      options.only = value;
    } else if (name == "--long") {
      options.is_long = value == "1";
    } else {
      return false;
    }
  }
  return argc % 2 == 1;
}

}  // namespace
}  // namespace nightshift

int main(int argc, char** argv) {
  nightshift::KernelBenchOptions options;
  if (!nightshift::ReadArguments(argc, argv, options)) {
    std::fprintf(stderr,
                 "usage: kernels [--threads N] [--target AVX3_BF16|AVX3|AVX2] [--rows M] "
                 "[--case TEXT] [--long 1]\n");
    return 2;
  }
  nightshift::SetEnvironment(options, argv);
  if (!nightshift::ForceTarget(options.target)) {
    std::fprintf(stderr, "kernels: this machine has no target %s\n", options.target.c_str());
    return 1;
  }
  nightshift::KernelBench bench(options);
  nightshift::RunAttentionCases(bench);
  nightshift::RunRowCases(bench);
  nightshift::RunMatMulCases(bench);
  return 0;
}
