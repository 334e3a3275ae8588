"""One measurement of Accelerate's disk offloading, for compare_offload: run by the Python of its
virtual environment, inside a memory cgroup.

Usage: accelerate_offload.py make FOLDER            writes the 1 B model in bf16 with random weights
       accelerate_offload.py run FOLDER ROWS CHUNK CONTEXT CHUNKS STEPS THREADS

`run` prints one JSON line: seconds of each prompt chunk [ROWS, CHUNK] and of each step [ROWS, 1]
over CONTEXT made-up keys. All layers are on disk, as safetensors; embedding and head stay.
"""

import json
import pathlib
import sys
import time

import torch
import transformers


def config_of_1b():
    return transformers.LlamaConfig(
        hidden_size=2048, intermediate_size=8192, num_hidden_layers=16, num_attention_heads=32,
        num_key_value_heads=8, vocab_size=49152, max_position_embeddings=4096, rms_norm_eps=1e-5,
        tie_word_embeddings=False, torch_dtype="bfloat16")


def make(folder):
    torch.set_default_dtype(torch.bfloat16)
    with torch.device("meta"):
        model = transformers.LlamaForCausalLM(config_of_1b())
    model.to_empty(device="cpu")
    noise = torch.randn(1 << 20, generator=torch.Generator().manual_seed(1)) / 50
    with torch.no_grad():
        for parameter in model.parameters():
            flat = parameter.view(-1)
            flat.copy_(noise.repeat(-(-flat.numel() // noise.numel()))[:flat.numel()]
                       if parameter.dim() > 1 else torch.ones_like(flat))
    model.save_pretrained(folder, max_shard_size="500MB")


def load(folder):
    layers = {f"model.layers.{i}": "disk" for i in range(16)}
    # Embedding and head on disk would be loaded as a whole several times over: 1.2 GB at a time.
    placement = {"model.embed_tokens": "cpu", **layers, "model.norm": "cpu",
                 "model.rotary_emb": "cpu", "lm_head": "cpu"}
    return transformers.AutoModelForCausalLM.from_pretrained(
        folder, device_map=placement, offload_folder=pathlib.Path(folder) / "offload",
        torch_dtype=torch.bfloat16, attn_implementation="eager")


def made_up_cache(config, rows, context):
    cache = transformers.DynamicCache()
    shape = (rows, config.num_key_value_heads, context,
             config.hidden_size // config.num_attention_heads)
    for layer in range(config.num_hidden_layers):
        cache.update(torch.full(shape, 0.01, dtype=torch.bfloat16),
                     torch.full(shape, 0.01, dtype=torch.bfloat16), layer)
    return cache


def timed(model, tokens, cache):
    start = time.monotonic()
    output = model(input_ids=tokens, past_key_values=cache, use_cache=True, logits_to_keep=1)
    output.logits.argmax(-1)
    return time.monotonic() - start


@torch.inference_mode()
def run(folder, rows, chunk, context, chunks, steps, threads):
    torch.set_num_threads(threads)
    model = load(folder)
    vocabulary = model.config.vocab_size
    generator = torch.Generator().manual_seed(1)
    cache = transformers.DynamicCache()
    chunk_seconds = [
        timed(model, torch.randint(vocabulary, (rows, chunk), generator=generator), cache)
        for _ in range(chunks)]
    del cache
    cache = made_up_cache(model.config, rows, context)
    step_seconds = [
        timed(model, torch.randint(vocabulary, (rows, 1), generator=generator), cache)
        for _ in range(steps)]
    print(json.dumps({"chunk_seconds": chunk_seconds, "step_seconds": step_seconds}), flush=True)


if __name__ == "__main__":
    if sys.argv[1] == "make":
        make(sys.argv[2])
    else:
        run(sys.argv[2], *map(int, sys.argv[3:9]))
