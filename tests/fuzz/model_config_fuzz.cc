// Input: config.json and generation_config.json of a published model.
#include <string>
#include <vector>

#include "absl/status/statusor.h"

#include "engine/model/config.h"
#include "engine/model/huggingface_config.h"
#include "engine/model/model_tensors.h"
#include "engine/model/tensor_map.h"
#include "tests/fuzz/fuzz_input.h"

namespace nightshift {

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::vector<std::string> parts = InputParts(InputText(data, size), 2);
  const auto model = SourceModelFromHuggingFace(parts[0], parts[1]);
  if (!model.ok()) {
    return 0;
  }
  CHECK(ValidateModelConfig(model->config).ok());
  const std::string text = ModelConfigToJson(model->config);
  const auto again = ModelConfigFromJson(text);
  CHECK(again.ok());
  CHECK(ModelConfigToJson(*again) == text);
  if (model->config.num_layers <= 8) {
    CHECK(!ModelTensors(model->config).empty());
  }
  (void)MapTensors(*model, SourceFormat::kSafetensors, {});
  return 0;
}

}  // namespace nightshift
