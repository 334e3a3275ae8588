// Ops on single rows: norms, activations, scaling, rotation. By run-time dispatch.
#pragma once

#include <cstdint>

#include "kernels/ops.h"

namespace nightshift::cpu {

// x and out, of `columns` elements, may be the same.
void RmsNormRow(const float* x, const float* weight, float epsilon, int64_t columns, float* out);
void LayerNormRow(const float* x, const float* weight, const float* bias, float epsilon,
                  int64_t columns, float* out);

// x = activation(x).
void ActivateRow(Activation activation, float* x, int64_t columns);
// gate = activation(gate) * up.
void GatedActivateRow(Activation activation, float* gate, const float* up, int64_t columns);

// x = factor * x.
void ScaleRow(float factor, int64_t columns, float* x);
// out = out + factor * x.
void AddScaledRow(const float* x, float factor, int64_t columns, float* out);
// x = cap * tanh(x / cap).
void SoftCapRow(float cap, int64_t columns, float* x);

// Rotates pairs (i, i + pairs) of one head by angles of the given cosines and sines, [pairs] each.
void RotateHead(float* head, const float* cosines, const float* sines, int64_t pairs);

}  // namespace nightshift::cpu
