// The family table: which architectures we run, and what their checkpoints call things. A new
// family of the known shape is one more row.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

#include "engine/model/config.h"
#include "engine/model/model_tensors.h"
#include "engine/model/strict_json.h"
#include "engine/model/tensor_source.h"

namespace nightshift {

class GgufKeys;

enum class SourceFormat : uint8_t { kSafetensors, kGguf };
const char* SourceFormatName(SourceFormat format);  // "safetensors", "gguf": for manifests

// One tensor in its three languages. A name without an ending stands for NAME.weight and NAME.bias.
// An empty `gguf` means that GGUF has no such tensor.
struct TensorNames {
  const char* canonical;
  const char* huggingface;
  const char* gguf;
};

// A model as its source describes it.
struct SourceModel {
  ModelConfig config;  // tied_head is decided by MapTensors
  // What the source says where it says it; the stored tensors must agree.
  std::optional<bool> tied_head;
  std::optional<bool> qkv_bias;
  std::optional<bool> o_bias;
  std::optional<bool> ffn_bias;
  bool plain_norms = false;  // norms without weight and bias (OPT's elementwise_affine false)
  // The checkpoint holds an image encoder beside the text model; it is passed over.
  bool has_image_encoder = false;
  std::vector<std::string> notes;  // what a person may want to know, one sentence each
};

// Order of the rows of a matrix that holds q, k and v.
enum class FusedRows : uint8_t {
  kStacked,   // all q, all k, all v
  kByKvHead,  // for each kv head: its queries, its key, its value
};

struct Family {
  const char* name;
  std::span<const char* const> architectures;  // class names of Hugging Face, first the usual one
  const char* model_type;                      // of Hugging Face's config.json
  const char* gguf_architecture;               // general.architecture, or nullptr
  const char* huggingface_layer;               // prefix of layer tensors; the number follows
  // Names that several tensors share mean one matrix that holds the rows of all.
  std::span<const TensorNames> model_names;
  std::span<const TensorNames> layer_names;
  void (*set_shape)(ModelConfig& config);  // family_shapes.h
  // family_configs.h
  void (*read_config)(JsonReader& reader, const nlohmann::json& config_json, SourceModel& model);
  // Of Hugging Face's matrices; those of GGUF are stacked.
  FusedRows huggingface_qkv = FusedRows::kStacked;
  // Hugging Face stores norm weights less 1 (Gemma); GGUF has added it.
  bool norm_weights_less_one = false;
  // GGUF files of the family hold q and k rows reordered for RoPE on pairs (2i, 2i + 1).
  bool gguf_pairs_rope_rows = false;
  // Of a GGUF file's window: every so-many-th layer sees all keys; 0: none does.
  int64_t gguf_window_period = 0;
  void (*complete_gguf)(GgufKeys& keys, ModelConfig& config) = nullptr;  // family_gguf.h
  // Layers may have experts. In GGUF a file with experts is of such a family only.
  bool has_experts = false;
  // Of models that also take images: members of text_config that may be missing, as JSON; nullptr:
  // config.json has no text_config.
  const char* text_defaults = nullptr;
  int64_t default_context_tokens = 0;  // where config.json need not say; 0: it must
};

// By the name in ModelConfig::family; nullptr if there is none.
const Family* FindFamily(absl::string_view name);
// By `architectures` of config.json, or by its model_type where that list is missing.
// Errors: INVALID_ARGUMENT naming what was found and what is supported.
absl::StatusOr<const Family*> FamilyOfConfig(const nlohmann::json& config_json,
                                             const std::string& what);
// By GGUF's general.architecture, which is "llama" for Mixtral too, and whether the file has
// experts. Errors: as above.
absl::StatusOr<const Family*> FamilyOfGguf(const std::string& architecture, bool has_experts);
// "LlamaForCausalLM (llama), OPTForCausalLM (opt)": for refusals.
std::string SupportedFamilies();

}  // namespace nightshift
