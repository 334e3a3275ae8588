# The sources of the CUDA device, for nvcc and for the host's compiler (tests/support).
set(CUDA_DEVICE_SOURCES attention.cu attention_plan.cc copy_lane.cc cuda_device.cc cuda_ops.cc embedding.cu
  float_matmul.cc float_matmul_kernels.cu gpu.cc group_matmul.cu head_reduce.cu kv_store.cu pinned_ranges.cc
  resources.cc row_kernels.cu shard_unpacker.cc staging.cc)
list(TRANSFORM CUDA_DEVICE_SOURCES PREPEND ${CMAKE_CURRENT_LIST_DIR}/)
