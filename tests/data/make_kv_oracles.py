#!/usr/bin/env python3
"""Makes goldens for keys and values in pages of integer groups: what appending rows to a page has to leave there.

    python make_kv_oracles.py --out kv        # writes pages.json

Needs numpy and xxhash. The same seed gives the same file.

A position's keys and values are G heads of D float32 numbers. A head's key is transformed first, in float32: in blocks of
n, the largest power of two that divides D, sums and differences (a + b, a - b) of numbers at distance 1, of what that
gives at distance 2, and so on to n / 2; then times 2^-(log2(n) // 2). Each head's row is quantised alone, by the asymmetric
scheme of make_group_oracles.py (U4G64, U8G64), in groups of 64 along D; the last group of a row is what is left. A group
with a number that is not finite has codes 0 and NaN as scale and minimum, whatever else it has, so all of it is NaN.

A page has 32 positions: plane K, then plane V, each padded to a multiple of 4096 bytes. W is D rounded up to a multiple
of 16; codes behind D are 0. In a plane:

    4 bits, keys      u32 [G][W/8][32], the codes of 8 dimensions; values u32 [G][32/8][W], those of 8 positions;
                      code 2p + e is bits 4p + 16e and up
    8 bits, keys      u8 [G][W/2][32][2]; values u8 [G][32/2][W][2]
    then numbers      float16 [G][groups][2][32]: scales, minimums

Each case appends `rows` positions from `slot` on to a page that was zeros: `k` and `v` (float32, hexadecimal,
little-endian) [rows][G * D]. For each type `page_xxh3` is XXH3 of the page, and `k_values`, `v_values` are what the codes
stand for: float32(float32(code * scale) + minimum), hashed the same way (NaN as 7fc00000).
"""

import argparse
import json
import pathlib

import numpy as np
import xxhash

from make_group_oracles import dequantise_group, hexadecimal, quantise_group

POSITIONS, GROUP, ALIGNMENT = 32, 64, 4096
TYPES = {"U4G64": 4, "U8G64": 8}


def quantise_row(x, bits):
    """x float32 [D] -> codes [D], scales and minimums of its groups, values [D]."""
    codes, values, scales, minimums = np.zeros(len(x), int), np.zeros(len(x), np.float32), [], []
    for first in range(0, len(x), GROUP):
        part = slice(first, min(first + GROUP, len(x)))
        if not np.isfinite(x[part]).all():
            scales.append(np.float16("nan"))
            minimums.append(np.float16("nan"))
            values[part] = np.float32("nan")
            continue
        codes[part], scale, minimum, _, _ = quantise_group(x[part].astype(np.float64), bits, True)
        scales.append(scale)
        minimums.append(minimum)
        values[part] = dequantise_group(codes[part], scale, minimum, True)
    return codes, scales, minimums, values


def transform_key(x):
    """x float32 [D]; Walsh-Hadamard in blocks."""
    block = len(x) & -len(x)
    x, distance = x.astype(np.float32), 1
    while distance < block:
        pairs = x.reshape(-1, 2, distance)
        x = np.stack([pairs[:, 0] + pairs[:, 1], pairs[:, 0] - pairs[:, 1]], 1).reshape(-1)
        distance *= 2
    return x * np.float32(2.0 ** -((block.bit_length() - 1) // 2))


def nibbles(codes):
    """[..., 8] codes -> u32."""
    word = np.zeros(codes.shape[:-1], np.uint32)
    for i in range(8):
        word |= codes[..., i].astype(np.uint32) << np.uint32(i // 2 * 4 + i % 2 * 16)
    return word


def plane(rows, slot, heads, width, bits, is_values):
    """rows float32 [rows][G * D] -> the plane's bytes, and what its codes stand for."""
    padded, groups = -(-width // 16) * 16, -(-width // GROUP)
    codes = np.zeros((heads, POSITIONS, padded), np.uint8)
    numbers = np.zeros((heads, groups, 2, POSITIONS), np.float16)
    values = np.zeros(rows.shape, np.float32)
    for r, row in enumerate(rows):
        for head in range(heads):
            part = slice(head * width, (head + 1) * width)
            x = row[part] if is_values else transform_key(row[part])
            of_head, scales, minimums, values[r, part] = quantise_row(x, bits)
            codes[head, slot + r, :width] = of_head
            numbers[head, :, 0, slot + r], numbers[head, :, 1, slot + r] = scales, minimums
    if bits == 4 and not is_values:
        packed = nibbles(codes.reshape(heads, POSITIONS, padded // 8, 8)).transpose(0, 2, 1)
    elif bits == 4:
        packed = nibbles(codes.reshape(heads, POSITIONS // 8, 8, padded).transpose(0, 1, 3, 2))
    elif not is_values:
        packed = codes.reshape(heads, POSITIONS, padded // 2, 2).transpose(0, 2, 1, 3)
    else:
        packed = codes.reshape(heads, POSITIONS // 2, 2, padded).transpose(0, 1, 3, 2)
    data = np.ascontiguousarray(packed).tobytes() + numbers.tobytes()
    return data + bytes(-len(data) % ALIGNMENT), values


def hashed(values):
    bits = np.ascontiguousarray(values, "<f4").view(np.uint32).copy()
    bits[np.isnan(values)] = 0x7FC00000
    return xxhash.xxh3_64_hexdigest(bits.tobytes())


def cases(rng):
    """name -> (heads, width, slot, k, v)"""
    normal = lambda *shape: rng.standard_normal(shape)
    both = lambda heads, width, slot, rows: (heads, width, slot, normal(rows, heads * width),
                                             0.5 * normal(rows, heads * width))
    tiny = 1.0 + 1e-5 * rng.random((3, 128))
    tiny[1] = 1e-7 * rng.random(128)
    outlier = normal(2, 128)
    outlier[0, [5, 70]], outlier[1, 100] = [60000.0, -60000.0], 3e38
    constant = np.repeat(np.array([0.37, 0.0, -1.5, 65504.0, 1e-30, -2e5]).reshape(6, 1), 64, 1)
    broken = normal(4, 2 * 80)
    broken[0, 3], broken[1, 70], broken[2, 81], broken[3, 159] = np.nan, np.inf, -np.inf, np.nan
    # Values with half a step between them: to the even code.
    ties = np.concatenate([[0.0, 15.0], np.arange(62) / 4])[None]
    return {
        "one_row": both(2, 64, 0, 1),
        "some_rows": both(1, 128, 5, 4),
        "last_slots": both(3, 16, 29, 3),
        "whole_page": both(1, 16, 0, 32),
        "head_80": both(2, 80, 11, 3),
        "head_96": both(1, 96, 30, 2),
        "head_256": both(1, 256, 1, 1),
        "narrow": both(2, 8, 7, 3),
        "odd": both(2, 19, 16, 2),
        "group_of_one": both(1, 65, 2, 2),
        "one_wide": both(3, 1, 0, 2),
        "constant": (1, 64, 3, constant, -constant),
        "zeros_of_both_signs": (1, 64, 0, np.where(np.arange(64) % 2, 0.0, -0.0)[None], np.zeros((1, 64))),
        "tiny_range": (1, 128, 9, tiny, -tiny),
        "outliers": (1, 128, 31 - 1, outlier, outlier[::-1]),
        "ties": (1, 64, 8, ties, -ties),
        "not_finite": (2, 80, 2, broken, normal(4, 160)),
    }


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=pathlib.Path, required=True)
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    args.out.mkdir(parents=True, exist_ok=True)
    documents = []
    for name, (heads, width, slot, k, v) in cases(np.random.default_rng(args.seed)).items():
        k, v = np.ascontiguousarray(k, "<f4"), np.ascontiguousarray(v, "<f4")
        document = {"name": name, "heads": heads, "width": width, "slot": slot, "rows": len(k), "k": hexadecimal(k),
                    "v": hexadecimal(v), "types": {}}
        for type_name, bits in TYPES.items():
            key_plane, key_values = plane(k, slot, heads, width, bits, False)
            value_plane, value_values = plane(v, slot, heads, width, bits, True)
            document["types"][type_name] = {
                "page_bytes": len(key_plane) + len(value_plane),
                "page_xxh3": xxhash.xxh3_64_hexdigest(key_plane + value_plane),
                "k_values": hashed(key_values), "v_values": hashed(value_values)}
        documents.append(document)
    (args.out / "pages.json").write_text(
        json.dumps({"format": "oracle/1", "cases": documents}, indent=1, ensure_ascii=True) + "\n")


if __name__ == "__main__":
    main()
