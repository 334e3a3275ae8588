#!/usr/bin/env python3
"""Imports a generated model of several GiB and checks the peak memory of the import.

Usage: import_memory.py [--gib N]. A part of `tests/run --long`: it writes twice N GiB of scratch.
"""

import argparse
import json
import os
import pathlib
import resource
import struct
import subprocess
import sys
import tempfile

from e2e_lib import MIB, NIGHTSHIFT

LIMIT_BYTES = 1536 * MIB
WIDTH, FFN, VOCABULARY, HEADS = 2048, 8192, 32768, 32


def tensors_of(num_layers):
    """Names and shapes of a Llama with untied head."""
    yield "model.embed_tokens.weight", (VOCABULARY, WIDTH)
    yield "lm_head.weight", (VOCABULARY, WIDTH)
    yield "model.norm.weight", (WIDTH,)
    for i in range(num_layers):
        layer = f"model.layers.{i}."
        for name in ("q", "k", "v", "o"):
            yield f"{layer}self_attn.{name}_proj.weight", (WIDTH, WIDTH)
        yield f"{layer}mlp.gate_proj.weight", (FFN, WIDTH)
        yield f"{layer}mlp.up_proj.weight", (FFN, WIDTH)
        yield f"{layer}mlp.down_proj.weight", (WIDTH, FFN)
        yield f"{layer}input_layernorm.weight", (WIDTH,)
        yield f"{layer}post_attention_layernorm.weight", (WIDTH,)


def bytes_of(shape):
    count = 2  # bf16
    for extent in shape:
        count *= extent
    return count


def write_model(folder, total_bytes):
    """Writes one safetensors file of about total_bytes; returns the bytes of the largest tensor."""
    layer_bytes = sum(bytes_of(s) for n, s in tensors_of(1) if ".layers." in n)
    tensors = dict(tensors_of(max(1, total_bytes // layer_bytes)))
    header, offset = {}, 0
    for name, shape in tensors.items():
        end = offset + bytes_of(shape)
        header[name] = {"dtype": "BF16", "shape": shape, "data_offsets": [offset, end]}
        offset = end
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    # Finite: the high bytes make numbers of about 0.01, of both signs.
    noise = bytearray(os.urandom(MIB))
    noise[1::2] = bytes(0x3c | byte & 0x80 for byte in noise[1::2])
    with open(folder / "model.safetensors", "wb") as stream:
        stream.write(struct.pack("<Q", len(text)) + text)
        for start in range(0, offset, MIB):
            stream.write(noise[:min(MIB, offset - start)])
    config = {"model_type": "llama", "architectures": ["LlamaForCausalLM"], "hidden_size": WIDTH,
              "intermediate_size": FFN, "num_hidden_layers": max(1, total_bytes // layer_bytes),
              "num_attention_heads": HEADS, "num_key_value_heads": HEADS, "hidden_act": "silu",
              "vocab_size": VOCABULARY, "max_position_embeddings": 2048, "rms_norm_eps": 1e-5,
              "rope_theta": 10000.0, "tie_word_embeddings": False, "torch_dtype": "bfloat16"}
    (folder / "config.json").write_text(json.dumps(config), encoding="utf-8")
    return max(map(bytes_of, tensors.values())), offset


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--gib", type=float, default=4)
    gib = parser.parse_args().gib
    with tempfile.TemporaryDirectory(prefix="nightshift-import-") as scratch:
        source = pathlib.Path(scratch) / "model"
        source.mkdir()
        largest, total = write_model(source, int(gib * 1024 * MIB))
        subprocess.run([NIGHTSHIFT, "import", source, "--output", f"{scratch}/pack"], check=True)
        peak = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss * 1024
        print(f"import of {total / MIB:.0f} MiB: peak {peak / MIB:.0f} MiB, "
              f"largest tensor {largest / MIB:.0f} MiB", flush=True)
        subprocess.run([NIGHTSHIFT, "model", "verify", f"{scratch}/pack"], check=True)
    if peak > LIMIT_BYTES + largest:
        sys.exit(f"peak memory of the import is above {LIMIT_BYTES / MIB:.0f} MiB + largest tensor")


if __name__ == "__main__":
    main()
