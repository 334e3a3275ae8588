#!/usr/bin/env python3
"""Makes goldens for GGUF's quantised types with the `gguf` package, which dequantises every one of them.

    python make_quant_oracles.py --out quants

Needs numpy, gguf 0.19, safetensors, xxhash. The same seed gives the same files. Writes

- blocks.json, blocks.safetensors: some blocks of each type (hexadecimal) and their values (F32 TYPE.values);
- bulk.json: for each type, many random blocks as a recipe and a checksum of their values. A recipe is
  (seed, rows, columns): the bytes are the outputs of SplitMix64 from the state `seed`, each as 8 bytes in little-endian
  order; then, in each block, bit 14 of a scale or minimum (fp16) is cleared where its exponent has all bits set.
  `values_xxh3` is XXH3 (64 bits, seed 0) of the float32 values, row by row;
- model.gguf, golden.json, golden.safetensors: a small Llama of random blocks of all types, its logits by a forward pass
  in float64 on the package's values, written here from the papers and the GGUF conventions (q and k rows are ordered for
  rotation of pairs 2i, 2i + 1).
"""

import argparse
import json
import pathlib

import gguf
import numpy as np
import safetensors.numpy
import xxhash
from gguf.constants import GGML_QUANT_SIZES, GGMLQuantizationType

# Bytes of a block that hold fp16 numbers: scale and minimum.
HALVES = {"Q4_0": [0], "Q4_1": [0, 2], "Q5_0": [0], "Q5_1": [0, 2], "Q8_0": [0], "Q2_K": [80, 82], "Q3_K": [108],
          "Q4_K": [0, 2], "Q5_K": [0, 2], "Q6_K": [208]}
# What the minimum must be, in scales, for the mean of random codes to be 0.
MINIMUM_PER_SCALE = {"Q4_1": -7.5, "Q5_1": -15.5, "Q2_K": 1.5, "Q4_K": 7.5, "Q5_K": 15.5}
EXPLICIT_VALUES = 2048  # of each type
BULK_ROWS, BULK_COLUMNS = 64, 16384

WIDTH, HEADS, KV_HEADS, HEAD_WIDTH, FFN, LAYERS, VOCABULARY = 256, 4, 1, 64, 256, 2, 96
EPSILON, THETA = 1e-5, 10000.0
WEIGHT_STD = 0.07
PROMPT_TOKENS = [1, 7, 40]
TYPES = {"token_embd": "Q6_K", "output": "Q5_1",
         "blk.0.attn_q": "Q2_K", "blk.0.attn_k": "Q3_K", "blk.0.attn_v": "Q4_K", "blk.0.attn_output": "Q5_K",
         "blk.0.ffn_gate": "Q4_K", "blk.0.ffn_up": "Q3_K", "blk.0.ffn_down": "Q6_K",
         "blk.1.attn_q": "Q5_0", "blk.1.attn_k": "Q5_1", "blk.1.attn_v": "Q6_K", "blk.1.attn_output": "Q2_K",
         "blk.1.ffn_gate": "Q5_0", "blk.1.ffn_up": "Q5_1", "blk.1.ffn_down": "Q5_K"}
SHAPES = {"token_embd": (VOCABULARY, WIDTH), "output": (VOCABULARY, WIDTH), "attn_q": (HEADS * HEAD_WIDTH, WIDTH),
          "attn_k": (KV_HEADS * HEAD_WIDTH, WIDTH), "attn_v": (KV_HEADS * HEAD_WIDTH, WIDTH),
          "attn_output": (WIDTH, HEADS * HEAD_WIDTH), "ffn_gate": (FFN, WIDTH), "ffn_up": (FFN, WIDTH),
          "ffn_down": (WIDTH, FFN)}


def sizes(name):
    """Values and bytes of a block."""
    return GGML_QUANT_SIZES[GGMLQuantizationType[name]]


def dequantize(name, rows):
    """Rows of blocks (uint8) to float32."""
    return gguf.quants.dequantize(rows, GGMLQuantizationType[name])


def halves(name, blocks, index):
    """A writable view of one fp16 field of blocks [n, bytes]."""
    at = HALVES[name][index]
    return blocks[:, at:at + 2].view(np.uint16)


def splitmix64(seed, num_bytes):
    count = (num_bytes + 7) // 8
    with np.errstate(over="ignore"):
        z = np.uint64(seed) + np.arange(1, count + 1, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15)
        z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        z ^= z >> np.uint64(31)
    return z.astype("<u8").view(np.uint8)[:num_bytes].copy()


def random_rows(name, seed, rows, columns):
    """The recipe of bulk.json: [rows, bytes]."""
    values, block_bytes = sizes(name)
    num_blocks = rows * columns // values
    blocks = splitmix64(seed, num_blocks * block_bytes).reshape(num_blocks, block_bytes)
    for index in range(len(HALVES[name])):
        field = halves(name, blocks, index)
        field[(field & 0x7C00) == 0x7C00] &= 0xBFFF
    return blocks.reshape(rows, -1)


def explicit_blocks(name, seed):
    """Edge cases, then random blocks: zeros; all bits set; the same with scale -0, with the largest scale."""
    values, block_bytes = sizes(name)
    count = EXPLICIT_VALUES // values
    blocks = random_rows(name, seed, count, values).reshape(count, block_bytes)
    blocks[0] = 0
    for index, half in enumerate([0x3C00, 0x8000, 0x7BFF], start=1):
        blocks[index] = 0xFF
        for field in range(len(HALVES[name])):
            halves(name, blocks, field)[index] = half
    return blocks


def matrix(name, shape, rng):
    """Random blocks whose values have mean 0 and about WEIGHT_STD; [rows, bytes]."""
    values, block_bytes = sizes(name)
    rows, columns = shape
    blocks = rng.integers(0, 256, (rows * columns // values, block_bytes), dtype=np.uint8)
    ratio = MINIMUM_PER_SCALE.get(name)
    halves(name, blocks, 0)[:] = np.float16(1.0).view(np.uint16)
    if ratio is not None:
        halves(name, blocks, 1)[:] = np.float16(ratio).view(np.uint16)
    std = dequantize(name, blocks.reshape(rows, -1)).std()
    scale = rng.uniform(0.5, 1.5, (len(blocks), 1)) * WEIGHT_STD / std
    halves(name, blocks, 0)[:] = scale.astype(np.float16).view(np.uint16)
    if ratio is not None:
        halves(name, blocks, 1)[:] = (scale * ratio).astype(np.float16).view(np.uint16)
    return blocks.reshape(rows, -1)


def write_model(path, rng):
    """Writes the GGUF file and returns its weights in float64."""
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_block_count(LAYERS)
    writer.add_context_length(128)
    writer.add_embedding_length(WIDTH)
    writer.add_feed_forward_length(FFN)
    writer.add_head_count(HEADS)
    writer.add_head_count_kv(KV_HEADS)
    writer.add_rope_dimension_count(HEAD_WIDTH)
    writer.add_rope_freq_base(THETA)
    writer.add_layer_norm_rms_eps(EPSILON)
    weights = {}
    for norm in ["output_norm"] + [f"blk.{i}.{n}" for i in range(LAYERS) for n in ("attn_norm", "ffn_norm")]:
        vector = rng.uniform(0.5, 1.5, WIDTH).astype(np.float32)
        writer.add_tensor(norm + ".weight", vector)
        weights[norm] = vector.astype(np.float64)
    for tensor, name in TYPES.items():
        rows = matrix(name, SHAPES[tensor.split(".")[-1]], rng)
        writer.add_tensor(tensor + ".weight", rows, raw_dtype=GGMLQuantizationType[name])
        weights[tensor] = dequantize(name, rows).astype(np.float64)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return weights


def rms_norm(x, weight):
    return x / np.sqrt((x * x).mean(-1, keepdims=True) + EPSILON) * weight


def rotate(x):
    """Rotates pairs (2i, 2i + 1) of each head; x [tokens, heads, head width]."""
    frequencies = THETA ** (-np.arange(0, HEAD_WIDTH, 2) / HEAD_WIDTH)
    angles = np.arange(len(x))[:, None, None] * frequencies
    even, odd = x[..., 0::2], x[..., 1::2]
    out = np.empty_like(x)
    out[..., 0::2] = even * np.cos(angles) - odd * np.sin(angles)
    out[..., 1::2] = even * np.sin(angles) + odd * np.cos(angles)
    return out


def attention(x, weights, layer):
    tokens = len(x)
    q = rotate((x @ weights[f"blk.{layer}.attn_q"].T).reshape(tokens, HEADS, HEAD_WIDTH))
    k = rotate((x @ weights[f"blk.{layer}.attn_k"].T).reshape(tokens, KV_HEADS, HEAD_WIDTH))
    v = (x @ weights[f"blk.{layer}.attn_v"].T).reshape(tokens, KV_HEADS, HEAD_WIDTH)
    mixed = np.empty_like(q)
    for head in range(HEADS):
        kv = head // (HEADS // KV_HEADS)
        scores = q[:, head] @ k[:, kv].T / np.sqrt(HEAD_WIDTH)
        scores[np.triu_indices(tokens, 1)] = -np.inf
        scores = np.exp(scores - scores.max(-1, keepdims=True))
        mixed[:, head] = scores / scores.sum(-1, keepdims=True) @ v[:, kv]
    return mixed.reshape(tokens, -1) @ weights[f"blk.{layer}.attn_output"].T


def forward(prompt, weights):
    """Logits of every position."""
    hidden = weights["token_embd"][prompt]
    for layer in range(LAYERS):
        hidden = hidden + attention(rms_norm(hidden, weights[f"blk.{layer}.attn_norm"]), weights, layer)
        x = rms_norm(hidden, weights[f"blk.{layer}.ffn_norm"])
        gate = x @ weights[f"blk.{layer}.ffn_gate"].T
        up = x @ weights[f"blk.{layer}.ffn_up"].T
        hidden = hidden + (gate / (1 + np.exp(-gate)) * up) @ weights[f"blk.{layer}.ffn_down"].T
    return rms_norm(hidden, weights["output_norm"]) @ weights["output"].T


def write_json(path, cases):
    path.write_text(json.dumps({"format": "oracle/1", "cases": cases}, indent=1, ensure_ascii=True) + "\n")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=pathlib.Path, required=True)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--bulk-rows", type=int, default=BULK_ROWS)
    args = parser.parse_args()
    args.out.mkdir(parents=True, exist_ok=True)
    explicit, values, bulk = [], {}, []
    for number, name in enumerate(HALVES):
        blocks = explicit_blocks(name, args.seed * 1000 + number)
        explicit.append({"name": name, "blocks": blocks.tobytes().hex()})
        values[f"{name}.values"] = dequantize(name, blocks)
        seed = args.seed * 1000 + 500 + number
        rows = random_rows(name, seed, args.bulk_rows, BULK_COLUMNS)
        dequantised = np.ascontiguousarray(dequantize(name, rows), dtype="<f4")
        bulk.append({"name": name, "seed": seed, "rows": args.bulk_rows, "columns": BULK_COLUMNS,
                     "values_xxh3": xxhash.xxh3_64_hexdigest(dequantised.tobytes())})
    write_json(args.out / "blocks.json", explicit)
    safetensors.numpy.save_file(values, args.out / "blocks.safetensors")
    write_json(args.out / "bulk.json", bulk)
    rng = np.random.default_rng(args.seed)
    weights = write_model(args.out / "model.gguf", rng)
    cases, logits = [], {}
    for tokens in PROMPT_TOKENS:
        prompt = rng.integers(3, VOCABULARY, tokens)
        rows = forward(prompt, weights)
        cases.append({"name": f"p{tokens}", "prompt": prompt.tolist()})
        logits[f"p{tokens}.logits"] = rows.astype(np.float32)
    write_json(args.out / "golden.json", cases)
    safetensors.numpy.save_file(logits, args.out / "golden.safetensors")


if __name__ == "__main__":
    main()
