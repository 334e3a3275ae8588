// Stand-in for NVIDIA's cuda_bf16.h: the type alone.
#pragma once

struct __nv_bfloat16 {
  unsigned short bits;
};
