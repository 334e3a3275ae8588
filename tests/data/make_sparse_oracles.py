#!/usr/bin/env python3
"""Makes goldens for sparse attention: which values the rows behind a prompt add up, and what comes of it.

    python make_sparse_oracles.py --out attention        # writes sparse.json

Needs numpy (and xxhash, of make_kv_oracles.py). The same seed gives the same file.

A query head of the row at position p sees n others before its own key: all, or those of its window. It keeps the
int(fraction * n) of them that weigh most in the softmax over all n + 1 keys, of equal ones those at lower positions, and its
own. Its output is the sum of the kept values by their weights, which are not scaled up for what is left out.

Each case has `tokens` positions with keys and values `k`, `v` [tokens][G * D] (bf16, hexadecimal, little-endian), and queries
`q` [rows][H * D] (signed bytes, hexadecimal) of the last rows: small whole numbers, so that neither bf16 nor the transformation
of packed keys rounds them. `types` has for F32 pages (which BF16 ones equal) and for those of integer groups (make_kv_oracles.py)
`kept`, the positions [rows][H][..] but the row's own, and `out` [rows][H * D] (float32, hexadecimal, little-endian).

A key that is kept and one that is not differ by at least GAP in their scores, unless they are the same key; and no kept key
weighs less than LEAST, so that a wrong choice shows in the output.
"""

import argparse
import json
import pathlib

import numpy as np

from make_group_oracles import hexadecimal
from make_kv_oracles import TYPES, quantise_row, transform_key

GAP, LEAST = 1e-4, 1e-4


def bf16(x):
    """Cut, not rounded: it only has to be one."""
    return (np.ascontiguousarray(x, "<f4").view(np.uint32) & np.uint32(0xFFFF0000)).view(np.float32)


def power(width):
    """Transformed keys are 2^-this times sums of 2^block numbers; queries make up for it."""
    block = (width & -width).bit_length() - 1
    return block - block // 2


def transform_query(q):
    block = len(q) & -len(q)
    return transform_key(q).astype(np.float64) * 2.0 ** ((block.bit_length() - 1) // 2 - power(len(q)))


def stored(rows, heads, width, bits, is_values):
    """[tokens][G * D] -> what pages of integer groups hold of it, keys transformed."""
    out = np.zeros(rows.shape, np.float32)
    for t, row in enumerate(rows):
        for head in range(heads):
            part = slice(head * width, (head + 1) * width)
            out[t, part] = quantise_row(row[part] if is_values else transform_key(row[part]), bits)[3]
    return out


def select(scores, fraction):
    """scores [n + 1], the own key last -> kept ones of the first n."""
    count = int(fraction * (len(scores) - 1))
    order = np.argsort(-scores[:-1], kind="stable")
    kept, left = order[:count], order[count:]
    if count and len(left):
        apart = scores[kept].min() - scores[left].max()
        if not (apart == 0 or apart > GAP):
            return None
    return np.sort(kept)


def attend(case, q, k, v):
    """-> kept [rows][H], out [rows][H * D]; nothing where a choice is too close."""
    heads, kv_heads, width, tokens = case["heads"], case["kv_heads"], case["width"], case["tokens"]
    rows, kept_rows = len(q), []
    out = np.zeros((rows, heads * width))
    for row in range(rows):
        position = tokens - rows + row
        first = max(0, position + 1 - case["window"]) if case["window"] else 0
        kept_rows.append([])
        for head in range(heads):
            part = slice(head // (heads // kv_heads) * width, (head // (heads // kv_heads) + 1) * width)
            own = slice(head * width, (head + 1) * width)
            scores = case["scale"] * (k[first:position + 1, part].astype(np.float64) @ q[row, own].astype(np.float64))
            if case["softcap"]:
                scores = case["softcap"] * np.tanh(scores / case["softcap"])
            kept = select(scores, case["fraction"])
            weights = np.exp(scores - scores.max())
            weights /= weights.sum()
            if kept is None or (len(kept) and weights[kept].min() < LEAST):
                return None
            chosen = np.append(kept, position - first)
            out[row, own] = weights[chosen] @ v[first + chosen, part].astype(np.float64)
            kept_rows[-1].append([int(first + i) for i in kept])
    return kept_rows, out


def cases():
    """name -> tokens, rows, heads, kv heads, width, fraction, window, softcap"""
    return {
        "one_key": (1, 1, 2, 1, 16, 0.1, 0, 0),
        "two_keys": (2, 1, 2, 1, 16, 0.5, 0, 0),
        "too_few_to_keep": (10, 1, 2, 2, 16, 0.1, 0, 0),
        "gqa_1": (100, 2, 2, 2, 64, 0.1, 0, 0),
        "gqa_4": (129, 2, 8, 2, 64, 0.1, 0, 0),
        "gqa_8": (130, 1, 8, 1, 128, 0.05, 0, 0),
        "gqa_20": (70, 1, 20, 1, 16, 0.25, 0, 0),
        "head_80": (97, 2, 4, 2, 80, 0.125, 0, 0),
        "odd_head": (75, 2, 2, 1, 19, 0.3, 0, 0),
        "window": (150, 4, 4, 2, 32, 0.1, 70, 0),
        "short_window": (100, 3, 2, 2, 16, 0.34, 3, 0),
        "softcap": (100, 2, 4, 2, 32, 0.1, 0, 2.0),
        "most": (66, 2, 2, 1, 32, 0.75, 0, 0),
        "same_keys": (140, 3, 4, 2, 32, 0.1, 0, 0),
    }


def make_case(name, shape, seed):
    tokens, rows, heads, kv_heads, width, fraction, window, softcap = shape
    case = {"name": name, "tokens": tokens, "rows": rows, "heads": heads, "kv_heads": kv_heads, "width": width,
            "fraction": fraction, "window": window, "softcap": softcap, "scale": 0.5 * width ** -0.5}
    for attempt in range(2000):
        rng = np.random.default_rng([seed, attempt])
        k = bf16(rng.standard_normal((tokens, kv_heads * width)))
        v = bf16(rng.standard_normal((tokens, kv_heads * width)))
        q = rng.integers(-2, 3, (rows, heads * width)).astype(np.float32)
        if name == "same_keys":  # each seven times, in turn: which of them is kept is up to the position
            k = k[np.arange(tokens) % (tokens // 7)]
        types = {}
        for type_name, bits in {"F32": 0, **TYPES}.items():
            keys, values, queries = k, v, q
            if bits:
                keys, values = (stored(x, kv_heads, width, bits, is_values) for x, is_values in ((k, False), (v, True)))
                queries = np.concatenate([transform_query(part) for row in q for part in row.reshape(heads, width)])
                queries = queries.reshape(q.shape)
                assert (bf16(queries) == queries).all()
            found = attend(case, queries, keys, values)
            if found is None:
                break
            types[type_name] = {"kept": found[0], "out": hexadecimal(np.ascontiguousarray(found[1], "<f4"))}
        else:
            bits = lambda x: hexadecimal((np.ascontiguousarray(x).view(np.uint32) >> 16).astype("<u2"))
            return {**case, "k": bits(k), "v": bits(v), "q": hexadecimal(q.astype(np.int8)), "types": types}
    raise SystemExit(f"{name}: no inputs whose choices are far apart")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=pathlib.Path, required=True)
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    args.out.mkdir(parents=True, exist_ok=True)
    documents = [make_case(name, shape, args.seed + i) for i, (name, shape) in enumerate(cases().items())]
    (args.out / "sparse.json").write_text(
        json.dumps({"format": "oracle/1", "cases": documents}, ensure_ascii=True) + "\n")


if __name__ == "__main__":
    main()
