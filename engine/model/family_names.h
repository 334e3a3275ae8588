// What checkpoints call the tensors of each family (tensor_names.h has ours).
#pragma once

#include <array>

#include "engine/model/families.h"

namespace nightshift::family_names {

inline constexpr std::array kLlamaModel = {
    TensorNames{"embed", "model.embed_tokens.weight", "token_embd.weight"},
    TensorNames{"final_norm", "model.norm", "output_norm"},
    TensorNames{"head", "lm_head.weight", "output.weight"},
};
inline constexpr std::array kLlamaLayer = {
    TensorNames{"attention_norm", "input_layernorm", "attn_norm"},
    TensorNames{"q", "self_attn.q_proj", "attn_q"},
    TensorNames{"k", "self_attn.k_proj", "attn_k"},
    TensorNames{"v", "self_attn.v_proj", "attn_v"},
    TensorNames{"q_norm", "self_attn.q_norm", "attn_q_norm"},
    TensorNames{"k_norm", "self_attn.k_norm", "attn_k_norm"},
    TensorNames{"o", "self_attn.o_proj", "attn_output"},
    TensorNames{"ffn_norm", "post_attention_layernorm", "ffn_norm"},
    TensorNames{"gate", "mlp.gate_proj", "ffn_gate"},
    TensorNames{"up", "mlp.up_proj", "ffn_up"},
    TensorNames{"down", "mlp.down_proj", "ffn_down"},
};

// A name with experts.* stands for every expert: Hugging Face's has the number in place of the
// star, GGUF's without a star is one tensor that stacks them [X, F, E].
inline constexpr std::array kMixtralLayer = {
    TensorNames{"attention_norm", "input_layernorm", "attn_norm"},
    TensorNames{"q", "self_attn.q_proj", "attn_q"},
    TensorNames{"k", "self_attn.k_proj", "attn_k"},
    TensorNames{"v", "self_attn.v_proj", "attn_v"},
    TensorNames{"o", "self_attn.o_proj", "attn_output"},
    TensorNames{"ffn_norm", "post_attention_layernorm", "ffn_norm"},
    TensorNames{"router", "block_sparse_moe.gate", "ffn_gate_inp"},
    TensorNames{"experts.*.gate", "block_sparse_moe.experts.*.w1", "ffn_gate_exps"},
    TensorNames{"experts.*.up", "block_sparse_moe.experts.*.w3", "ffn_up_exps"},
    TensorNames{"experts.*.down", "block_sparse_moe.experts.*.w2", "ffn_down_exps"},
};
inline constexpr std::array kQwen3MoeLayer = {
    TensorNames{"attention_norm", "input_layernorm", "attn_norm"},
    TensorNames{"q", "self_attn.q_proj", "attn_q"},
    TensorNames{"k", "self_attn.k_proj", "attn_k"},
    TensorNames{"v", "self_attn.v_proj", "attn_v"},
    TensorNames{"q_norm", "self_attn.q_norm", "attn_q_norm"},
    TensorNames{"k_norm", "self_attn.k_norm", "attn_k_norm"},
    TensorNames{"o", "self_attn.o_proj", "attn_output"},
    TensorNames{"ffn_norm", "post_attention_layernorm", "ffn_norm"},
    TensorNames{"gate", "mlp.gate_proj", "ffn_gate"},
    TensorNames{"up", "mlp.up_proj", "ffn_up"},
    TensorNames{"down", "mlp.down_proj", "ffn_down"},
    TensorNames{"router", "mlp.gate", "ffn_gate_inp"},
    TensorNames{"experts.*.gate", "mlp.experts.*.gate_proj", "ffn_gate_exps"},
    TensorNames{"experts.*.up", "mlp.experts.*.up_proj", "ffn_up_exps"},
    TensorNames{"experts.*.down", "mlp.experts.*.down_proj", "ffn_down_exps"},
};

// Gemma 2 and 3, and OLMo 2, which lacks the norms before the branches.
inline constexpr std::array kGemmaLayer = {
    TensorNames{"attention_norm", "input_layernorm", "attn_norm"},
    TensorNames{"q", "self_attn.q_proj", "attn_q"},
    TensorNames{"k", "self_attn.k_proj", "attn_k"},
    TensorNames{"v", "self_attn.v_proj", "attn_v"},
    TensorNames{"q_norm", "self_attn.q_norm", "attn_q_norm"},
    TensorNames{"k_norm", "self_attn.k_norm", "attn_k_norm"},
    TensorNames{"o", "self_attn.o_proj", "attn_output"},
    TensorNames{"attention_branch_norm", "post_attention_layernorm", "post_attention_norm"},
    TensorNames{"ffn_norm", "pre_feedforward_layernorm", "ffn_norm"},
    TensorNames{"gate", "mlp.gate_proj", "ffn_gate"},
    TensorNames{"up", "mlp.up_proj", "ffn_up"},
    TensorNames{"down", "mlp.down_proj", "ffn_down"},
    TensorNames{"ffn_branch_norm", "post_feedforward_layernorm", "post_ffw_norm"},
};

inline constexpr std::array kPhi3Layer = {
    TensorNames{"attention_norm", "input_layernorm", "attn_norm"},
    TensorNames{"q", "self_attn.qkv_proj", "attn_qkv"},
    TensorNames{"k", "self_attn.qkv_proj", "attn_qkv"},
    TensorNames{"v", "self_attn.qkv_proj", "attn_qkv"},
    TensorNames{"o", "self_attn.o_proj", "attn_output"},
    TensorNames{"ffn_norm", "post_attention_layernorm", "ffn_norm"},
    TensorNames{"gate", "mlp.gate_up_proj", "ffn_up"},
    TensorNames{"up", "mlp.gate_up_proj", "ffn_up"},
    TensorNames{"down", "mlp.down_proj", "ffn_down"},
};

inline constexpr std::array kGptNeoXModel = {
    TensorNames{"embed", "gpt_neox.embed_in.weight", "token_embd.weight"},
    TensorNames{"final_norm", "gpt_neox.final_layer_norm", "output_norm"},
    TensorNames{"head", "embed_out.weight", "output.weight"},
};
inline constexpr std::array kGptNeoXLayer = {
    TensorNames{"attention_norm", "input_layernorm", "attn_norm"},
    TensorNames{"q", "attention.query_key_value", "attn_qkv"},
    TensorNames{"k", "attention.query_key_value", "attn_qkv"},
    TensorNames{"v", "attention.query_key_value", "attn_qkv"},
    TensorNames{"o", "attention.dense", "attn_output"},
    TensorNames{"ffn_norm", "post_attention_layernorm", "ffn_norm"},
    TensorNames{"up", "mlp.dense_h_to_4h", "ffn_up"},
    TensorNames{"down", "mlp.dense_4h_to_h", "ffn_down"},
};

inline constexpr std::array kFalconModel = {
    TensorNames{"embed", "transformer.word_embeddings.weight", "token_embd.weight"},
    TensorNames{"final_norm", "transformer.ln_f", "output_norm"},
    TensorNames{"head", "lm_head.weight", "output.weight"},
};
inline constexpr std::array kFalconLayer = {
    TensorNames{"attention_norm", "input_layernorm", "attn_norm"},
    TensorNames{"q", "self_attention.query_key_value", "attn_qkv"},
    TensorNames{"k", "self_attention.query_key_value", "attn_qkv"},
    TensorNames{"v", "self_attention.query_key_value", "attn_qkv"},
    TensorNames{"o", "self_attention.dense", "attn_output"},
    TensorNames{"up", "mlp.dense_h_to_4h", "ffn_up"},
    TensorNames{"down", "mlp.dense_4h_to_h", "ffn_down"},
};

inline constexpr std::array kOptModel = {
    TensorNames{"embed", "model.decoder.embed_tokens.weight", ""},
    TensorNames{"positions", "model.decoder.embed_positions.weight", ""},
    TensorNames{"project_in", "model.decoder.project_in.weight", ""},
    TensorNames{"project_out", "model.decoder.project_out.weight", ""},
    TensorNames{"final_norm", "model.decoder.final_layer_norm", ""},
    TensorNames{"head", "lm_head.weight", ""},
};
// OPT's layer calls the norm of its MLP `final_layer_norm`; the model's own has the same name.
inline constexpr std::array kOptLayer = {
    TensorNames{"attention_norm", "self_attn_layer_norm", ""},
    TensorNames{"q", "self_attn.q_proj", ""},
    TensorNames{"k", "self_attn.k_proj", ""},
    TensorNames{"v", "self_attn.v_proj", ""},
    TensorNames{"o", "self_attn.out_proj", ""},
    TensorNames{"ffn_norm", "final_layer_norm", ""},
    TensorNames{"up", "fc1", ""},
    TensorNames{"down", "fc2", ""},
};

}  // namespace nightshift::family_names
