#!/usr/bin/env python3
"""What 4-bit and 8-bit weights cost SmolLM2-135M-Instruct, without our code: where the bound of smollm2_test is from.

    python check_int4_loss.py SmolLM2-135M-Instruct.Q4_1.gguf        # needs numpy and gguf; some minutes

A forward pass in numpy (float32), written from the published description of the family, which must first reproduce
smollm2/logprobs.json (transformers, float32) within 1e-3. The weights are the values that the file's Q4_1 and Q8_0
groups of 32 stand for: the only real weights at hand are 4-bit ones already. They are quantised again in groups of 64,
as `nightshift import --weights int4|int8 --requantise` does: the embedding, which is the head too, to 8 bits.

Printed for each way of quantising: perplexity of the four texts of logprobs.json, its ratio to that of the weights as
they are, and the error of the weights (root of the mean square, relative to the weights').

  range      minimum and maximum of a group span it (the pack's way; make_group_oracles.py)
  clipped    of 36 smaller spans of each group the one with the least squared error
  noise      no quantiser at all: values moved at random by as much as `range` moves them
"""

import json
import pathlib
import sys

import gguf
import numpy as np

HERE = pathlib.Path(__file__).parent
GROUP = 64


def read(path):
    reader = gguf.GGUFReader(path)
    weights = {}
    for tensor in reader.tensors:
        weights[tensor.name] = gguf.quants.dequantize(tensor.data, tensor.tensor_type).astype(np.float32)
    field = lambda key: reader.fields[key].parts[reader.fields[key].data[0]][0]
    config = {"layers": int(field("llama.block_count")), "heads": int(field("llama.attention.head_count")),
              "kv_heads": int(field("llama.attention.head_count_kv")),
              "epsilon": float(field("llama.attention.layer_norm_rms_epsilon")),
              "theta": float(field("llama.rope.freq_base"))}
    return config, weights


class Model:
    def __init__(self, config, weights):
        self.config, self.weights = config, weights

    def norm(self, x, name):
        scale = np.sqrt((x * x).mean(-1, keepdims=True) + self.config["epsilon"])
        return x / scale * self.weights[name + ".weight"]

    def times(self, x, name):
        return x @ self.weights[name + ".weight"].T

    def rotate(self, x):
        """Pairs (2i, 2i + 1): GGUF files of this family have their rows in that order."""
        width = x.shape[-1]
        frequencies = self.config["theta"] ** (-np.arange(0, width, 2) / width)
        angles = (np.arange(len(x))[:, None, None] * frequencies).astype(np.float32)
        out = np.empty_like(x)
        out[..., 0::2] = x[..., 0::2] * np.cos(angles) - x[..., 1::2] * np.sin(angles)
        out[..., 1::2] = x[..., 0::2] * np.sin(angles) + x[..., 1::2] * np.cos(angles)
        return out

    def attention(self, x, at):
        heads, kv_heads, rows = self.config["heads"], self.config["kv_heads"], len(x)
        split = lambda which, count: self.times(x, at + "attn_" + which).reshape(rows, count, -1)
        q, k, v = self.rotate(split("q", heads)), self.rotate(split("k", kv_heads)), split("v", kv_heads)
        future = np.triu(np.full((rows, rows), -np.inf, np.float32), 1)
        mixed = np.empty_like(q)
        for head in range(heads):
            group = head // (heads // kv_heads)
            scores = q[:, head] @ k[:, group].T / np.float32(np.sqrt(q.shape[-1])) + future
            scores = np.exp(scores - scores.max(-1, keepdims=True))
            mixed[:, head] = scores / scores.sum(-1, keepdims=True) @ v[:, group]
        return self.times(mixed.reshape(rows, -1), at + "attn_output")

    def logprobs(self, tokens):
        """Of each token behind those before it, from the second one on."""
        x = self.weights["token_embd.weight"][tokens]
        for layer in range(self.config["layers"]):
            at = f"blk.{layer}."
            x = x + self.attention(self.norm(x, at + "attn_norm"), at)
            y = self.norm(x, at + "ffn_norm")
            gate = self.times(y, at + "ffn_gate")
            x = x + self.times(gate / (1 + np.exp(-gate)) * self.times(y, at + "ffn_up"), at + "ffn_down")
        logits = (self.norm(x, "output_norm") @ self.weights["token_embd.weight"].T).astype(np.float64)
        logits -= logits.max(-1, keepdims=True)
        logprobs = logits - np.log(np.exp(logits).sum(-1, keepdims=True))
        return logprobs[np.arange(len(tokens) - 1), tokens[1:]]


def half(values):
    return np.clip(values, -65504, 65504).astype(np.float16).astype(np.float64)


def groups_of(weight):
    return weight.astype(np.float64).reshape(len(weight), -1, GROUP)


def int4_range(weight):
    x = groups_of(weight)
    low, spread = x.min(-1, keepdims=True), np.ptp(x, -1, keepdims=True)
    codes = np.where(spread > 0, np.rint((x - low) * 15 / np.where(spread > 0, spread, 1)), 0)
    return (codes * half(spread / 15) + half(low)).reshape(weight.shape).astype(np.float32)


def int4_clipped(weight, steps=8, most=0.35):
    x = groups_of(weight)
    low, spread = x.min(-1, keepdims=True), np.ptp(x, -1, keepdims=True)
    best, least = np.zeros_like(x), np.full(low.shape, np.inf)
    for cut_low in np.linspace(0, most, steps):
        for cut_high in np.linspace(0, most, steps):
            if cut_low + cut_high > most + 1e-9:
                continue
            minimum, scale = half(low + cut_low * spread), half(spread * (1 - cut_low - cut_high) / 15)
            codes = np.clip(np.rint((x - minimum) / np.where(scale > 0, scale, 1)), 0, 15)
            values = codes * scale + minimum
            error = ((values - x) ** 2).sum(-1, keepdims=True)
            best, least = np.where(error < least, values, best), np.minimum(error, least)
    return best.reshape(weight.shape).astype(np.float32)


def int8_range(weight):
    x = groups_of(weight)
    largest = np.abs(x).max(-1, keepdims=True)
    codes = np.where(largest > 0, np.rint(x * 127 / np.where(largest > 0, largest, 1)), 0)
    return (codes * half(largest / 127)).reshape(weight.shape).astype(np.float32)


def noise(weight):
    """Uniform, of the variance that the error of int4_range has in each group."""
    error = groups_of(int4_range(weight)) - groups_of(weight)
    spread = np.sqrt(3 * (error ** 2).mean(-1, keepdims=True))
    random = np.random.default_rng(weight.size)
    moved = groups_of(weight) + spread * random.uniform(-1, 1, error.shape)
    return moved.reshape(weight.shape).astype(np.float32)


def changed(weights, change, table=int8_range):
    return {name: weight if weight.ndim == 1 else (table if name == "token_embd.weight" else change)(weight)
            for name, weight in weights.items()}


def error_of(weights, others):
    names = [name for name in weights if weights[name].ndim == 2 and name != "token_embd.weight"]
    return np.mean([np.sqrt(((others[name] - weights[name]) ** 2).mean() / (weights[name] ** 2).mean()) for name in names])


def perplexity(config, weights, texts):
    logprobs = np.concatenate([Model(config, weights).logprobs(text) for text in texts])
    return np.exp(-logprobs.mean())


def main():
    config, weights = read(sys.argv[1])
    cases = json.loads((HERE / "smollm2" / "logprobs.json").read_text())["cases"]
    for case in cases:
        worst = np.abs(Model(config, weights).logprobs(case["prompt"]) - case["prompt_logprobs"][1:]).max()
        assert worst < 1e-3, (case["name"], worst)
    texts = [case["prompt"] for case in cases]
    base = perplexity(config, weights, texts)
    print(f"as they are    {base:8.3f}", flush=True)
    same = lambda weight: weight
    for name, others in (("int8 range", lambda: changed(weights, int8_range)),
                         ("int4 range", lambda: changed(weights, int4_range)),
                         ("int4 clipped", lambda: changed(weights, int4_clipped)),
                         ("noise", lambda: changed(weights, noise, table=same))):
        new = others()
        value = perplexity(config, new, texts)
        print(f"{name:14s} {value:8.3f}  x {value / base:.4f}  error {error_of(weights, new):.4f}", flush=True)


if __name__ == "__main__":
    main()
