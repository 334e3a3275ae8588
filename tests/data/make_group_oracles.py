#!/usr/bin/env python3
"""Makes goldens for weights quantised to integer groups of 64: the reference that the quantiser is held to.

    python make_group_oracles.py --out groups        # writes groups.json

Needs numpy and xxhash. The same seed gives the same file.

A row's last axis is cut into groups of 64; the last one may be shorter. With lo, hi the least and largest value of a
group, a the largest magnitude, all arithmetic in float64 and every rounding to nearest, ties to even:

    asymmetric   U4G64, L = 15; U8G64, L = 255
                 code = rint((x - lo) * L / (hi - lo)), 0 where hi == lo
                 scale = float16((hi - lo) / L), minimum = float16(lo), both saturated to +-65504
                 value = float32(float32(code * scale) + minimum)
    symmetric    I4G64, L = 7; I8G64, L = 127
                 code = rint(x * L / a), 0 where a == 0
                 scale = float16(a / L), saturated
                 value = float32(code * scale)

The asymmetric 4-bit scheme is FlexGen's (Sheng et al. 2023, group-wise quantisation), with the step stored in place of
its reciprocal: no constant group divides by zero, no narrow one overflows. Error of a value, proven in `bound`:

    |value - x| <= step / 2 + code * |scale - step| + |minimum - lo| + 2^-23 * (|value| or less)

with the exact step (hi - lo) / L or a / L: half a step, the stored step's rounding times the code, the stored minimum's
rounding, one rounding to float32.

Each case has `x` (float32, hexadecimal, little-endian), `rows`, `inputs` and for each type `codes` (one byte each, as
stored: I4G64 plus 8, I8G64 in two's complement), `scales` and `minimums` (float16), `bounds` (of each group),
`values_xxh3`, the hash of the values (float32, XXH3), and `panel_xxh3`, that of the one panel that these rows make by
pack_format.md.
"""

import argparse
import json
import pathlib

import numpy as np
import xxhash

GROUP, PANEL = 64, 64
HALF_MAX = 65504.0
TYPES = {"U4G64": (4, True), "I4G64": (4, False), "U8G64": (8, True), "I8G64": (8, False)}


def half(value):
    return np.float16(np.clip(np.float64(value), -HALF_MAX, HALF_MAX))


def levels(bits, asymmetric):
    return 2**bits - 1 if asymmetric else 2 ** (bits - 1) - 1


def quantise_group(x, bits, asymmetric):
    """x float64 -> codes (signed for symmetric types), scale, minimum (0 for symmetric types), exact step, exact lo."""
    top = levels(bits, asymmetric)
    if asymmetric:
        low, spread = x.min() + 0.0, x.max() - x.min()  # no minimum of -0
    else:
        low, spread = np.float64(0), np.abs(x).max()
    codes = np.rint((x - low) * top / spread) if spread > 0 else np.zeros(len(x))
    return codes.astype(int), half(spread / top), half(low), spread / top, low


def dequantise_group(codes, scale, minimum, asymmetric):
    product = codes.astype(np.float32) * np.float32(scale)
    return (product + np.float32(minimum)).astype(np.float32) if asymmetric else product


def bound(codes, scale, minimum, step, low, values):
    """The largest error of the group's values; holds whatever the values were."""
    rounded = np.abs(values).max() if len(values) else 0.0
    return float(step / 2 + np.abs(codes).max() * abs(float(scale) - step) + abs(float(minimum) - low)
                 + 2.0**-23 * float(rounded) + 2.0**-149)


def quantise(x, bits, asymmetric):
    rows, inputs = x.shape
    groups = -(-inputs // GROUP)
    codes = np.zeros((rows, inputs), int)
    values = np.zeros((rows, inputs), np.float32)
    scales, minimums = np.zeros((rows, groups), np.float16), np.zeros((rows, groups), np.float16)
    bounds = np.zeros((rows, groups))
    for r in range(rows):
        for g in range(groups):
            part = slice(g * GROUP, min((g + 1) * GROUP, inputs))
            exact = x[r, part].astype(np.float64)
            c, scales[r, g], minimums[r, g], step, low = quantise_group(exact, bits, asymmetric)
            v = dequantise_group(c, scales[r, g], minimums[r, g], asymmetric)
            codes[r, part], values[r, part] = c, v
            bounds[r, g] = bound(c, scales[r, g], minimums[r, g], step, low, v)
            error = np.abs(v.astype(np.float64) - exact).max()
            assert np.isfinite(v).all() and error <= bounds[r, g], (error, bounds[r, g])
    return codes, scales, minimums, values, bounds


def stored(codes, bits, asymmetric):
    """Codes as their bytes hold them."""
    if bits == 4:
        return (codes if asymmetric else codes + 8).astype(np.uint8)
    return (codes & 255).astype(np.uint8)


def panel_bytes(code_bytes, scales, minimums, bits, asymmetric):
    """pack_format.md, section 1: three planes; padding is 0."""
    rows, inputs = code_bytes.shape
    padded = -(-inputs // 32) * 32
    groups = -(-padded // GROUP)
    elements = np.zeros(PANEL * padded, np.uint8)
    for n in range(rows):
        for k in range(inputs):
            elements[(k // 2) * 128 + n * 2 + k % 2] = code_bytes[n, k]
    plane = elements if bits == 8 else elements[0::2] | elements[1::2] << 4
    result = plane.tobytes()
    for numbers in [scales, minimums] if asymmetric else [scales]:
        of_groups = np.zeros((groups, PANEL), np.float16)
        of_groups[:numbers.shape[1], :rows] = numbers.T
        result += of_groups.tobytes()
    return result


def cases(rng):
    normal = lambda *shape: rng.standard_normal(shape)
    outlier = normal(1, 3 * GROUP)
    outlier[0, [5, 70, 130, 131]] = [60000.0, -60000.0, 30000.0, -20000.0]
    grid = np.concatenate([rng.permutation(np.arange(GROUP) % 16) * 0.125 - 1.0,
                           (rng.permutation(np.arange(GROUP) % 15) - 7) * 0.25])
    ties = np.concatenate([[0.0, 15.0], np.arange(15) + 0.5, np.arange(16), rng.permutation(31) / 2])
    signed_ties = np.concatenate([[-7.0, 7.0], np.arange(-6, 7) + 0.5, rng.integers(-14, 15, GROUP - 15) / 2])
    tiny = np.concatenate([1.0 + 1e-5 * rng.random(GROUP), 1e-4 * rng.random(GROUP), 0.01 + 2e-4 * rng.random(GROUP)])
    return {
        "normal": normal(2, 4 * GROUP),
        "weights": 0.02 * normal(64, 70),
        "heavy_tails": 0.02 * rng.standard_t(3, (3, 2 * GROUP)),
        "constant": np.repeat([0.37, 0.0, -1.5, 65504.0, 1e-30], GROUP)[None],
        "zeros_of_both_signs": np.where(np.arange(GROUP) % 2, 0.0, -0.0)[None],
        "one_value_apart": np.where(np.arange(GROUP) == 17, -3.25, 0.5)[None],
        "tiny_range": tiny[None],
        "subnormal_scale": 1e-7 * rng.random((1, 2 * GROUP)),
        "subnormal_input": np.concatenate([6e-8 * rng.integers(0, 900, GROUP), 1e-40 * rng.random(GROUP)])[None],
        "outlier": outlier,
        "beyond_half": np.concatenate([1e5 + 2e5 * rng.random(GROUP), -3e5 * rng.random(GROUP)])[None],
        "largest_float": np.where(np.arange(GROUP) % 2, 3.4e38, -3.4e38)[None],
        "offset": 1000.0 + 0.01 * normal(1, 2 * GROUP),
        "negative_only": -0.5 - 0.1 * rng.random((1, GROUP)),
        "grid": grid[None],
        "ties": np.stack([ties[:GROUP], signed_ties]),
        "ragged": normal(3, 100),
        "group_of_one": normal(2, 65),
        "odd": normal(2, 33),
        "short": normal(1, 5),
        "one": normal(1, 1),
    }


def hexadecimal(array):
    return np.ascontiguousarray(array).tobytes().hex()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=pathlib.Path, required=True)
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    args.out.mkdir(parents=True, exist_ok=True)
    documents = []
    for name, numbers in cases(np.random.default_rng(args.seed)).items():
        x = np.ascontiguousarray(numbers, "<f4")
        document = {"name": name, "rows": x.shape[0], "inputs": x.shape[1], "x": hexadecimal(x), "types": {}}
        for type_name, (bits, asymmetric) in TYPES.items():
            codes, scales, minimums, values, bounds = quantise(x, bits, asymmetric)
            code_bytes = stored(codes, bits, asymmetric)
            panel = panel_bytes(code_bytes, scales, minimums, bits, asymmetric)
            document["types"][type_name] = {
                "codes": hexadecimal(code_bytes), "scales": hexadecimal(scales), "minimums": hexadecimal(minimums),
                "values_xxh3": xxhash.xxh3_64_hexdigest(values.astype("<f4").tobytes()),
                "bounds": [[float(f"{b:.17g}") for b in row] for row in bounds],
                "panel_xxh3": xxhash.xxh3_64_hexdigest(panel)}
        documents.append(document)
    (args.out / "groups.json").write_text(
        json.dumps({"format": "oracle/1", "cases": documents}, indent=1, ensure_ascii=True) + "\n")


if __name__ == "__main__":
    main()
