// The manifest that a pack of a known shape would have, without the pack: what plans for models
// that are not on the disk go by. Pure.
#pragma once

#include "engine/model/known_shapes.h"
#include "engine/model/pack.h"
#include "kernels/dtype.h"

namespace nightshift {

// Tensors and shards as the pack writer would cut them. Matrices have the type `weights`, or BF16
// where their rows do not fit it; vectors are F32. Checksums and digest are 0.
PackManifest ManifestOf(const KnownShape& shape, DType weights);

}  // namespace nightshift
