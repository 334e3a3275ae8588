#!/usr/bin/env python3
"""Makes choices/NAME.json: log-probabilities of continuations of one prompt.

A forward pass in numpy and float64, written from the published description of the families alone.
Before anything is written it must reproduce what transformers says of the same weights
(tiny/NAME/golden.json, made by make_oracles.py) within 1e-4.

    python3 make_choice_oracles.py          # numpy
"""
import json
import pathlib

import numpy as np

HERE = pathlib.Path(__file__).parent


def read_tensors(folder):
    tensors = {}
    for path in sorted(folder.glob("model*.safetensors")):
        raw = path.read_bytes()
        size = int.from_bytes(raw[:8], "little")
        for name, entry in json.loads(raw[8:8 + size]).items():
            if name == "__metadata__":
                continue
            begin, end = entry["data_offsets"]
            assert entry["dtype"] == "BF16", entry
            bits = np.frombuffer(raw[8 + size + begin:8 + size + end], np.uint16)
            values = (bits.astype(np.uint32) << 16).view(np.float32)
            tensors[name] = values.reshape(entry["shape"]).astype(np.float64)
    return tensors


class Model:
    def __init__(self, name):
        folder = HERE / "tiny" / name
        self.config = json.loads((folder / "config.json").read_text())
        self.weights = read_tensors(folder)
        self.golden = json.loads((folder / "golden.json").read_text())

    def norm(self, x, name):
        scale = np.sqrt((x * x).mean(-1, keepdims=True) + self.config["rms_norm_eps"])
        return x / scale * self.weights[name]

    def rotate(self, x, width):
        half = width // 2
        frequencies = self.config["rope_theta"] ** (-np.arange(half) / half)
        angles = np.arange(len(x))[:, None, None] * frequencies
        first, second = x[..., :half], x[..., half:]
        return np.concatenate([first * np.cos(angles) - second * np.sin(angles),
                               second * np.cos(angles) + first * np.sin(angles)], -1)

    def attention(self, x, layer):
        heads, kv_heads = self.config["num_attention_heads"], self.config["num_key_value_heads"]
        width = self.config.get("head_dim") or self.config["hidden_size"] // heads
        rows = len(x)
        project = lambda which, count: (
            x @ self.weights[f"model.layers.{layer}.self_attn.{which}_proj.weight"].T).reshape(
                rows, count, width)
        q, k = self.rotate(project("q", heads), width), self.rotate(project("k", kv_heads), width)
        v = project("v", kv_heads)
        distance = np.arange(rows)[:, None] - np.arange(rows)[None, :]
        window = self.config.get("sliding_window") or rows
        hidden = (distance < 0) | (distance >= window)
        mixed = np.empty((rows, heads, width))
        for head in range(heads):
            group = head // (heads // kv_heads)
            scores = q[:, head] @ k[:, group].T / np.sqrt(width)
            scores[hidden] = -np.inf
            scores = np.exp(scores - scores.max(-1, keepdims=True))
            mixed[:, head] = scores / scores.sum(-1, keepdims=True) @ v[:, group]
        return mixed.reshape(rows, -1) @ self.weights[
            f"model.layers.{layer}.self_attn.o_proj.weight"].T

    def feed_forward(self, x, layer):
        weight = lambda which: self.weights[f"model.layers.{layer}.mlp.{which}_proj.weight"].T
        gate = x @ weight("gate")
        return (gate / (1 + np.exp(-gate)) * (x @ weight("up"))) @ weight("down")

    def logprobs(self, tokens):
        """Of each token behind those before it, from the second one on."""
        x = self.weights["model.embed_tokens.weight"][tokens]
        for layer in range(self.config["num_hidden_layers"]):
            at = f"model.layers.{layer}."
            x = x + self.attention(self.norm(x, at + "input_layernorm.weight"), layer)
            x = x + self.feed_forward(self.norm(x, at + "post_attention_layernorm.weight"), layer)
        logits = self.norm(x, "model.norm.weight") @ self.weights["lm_head.weight"].T
        logits -= logits.max(-1, keepdims=True)
        logprobs = logits - np.log(np.exp(logits).sum(-1, keepdims=True))
        return [float(logprobs[i - 1, tokens[i]]) for i in range(1, len(tokens))]

    def check(self):
        for case in self.golden["cases"]:
            expected = case["prompt_logprobs"][1:]
            worst = max(map(abs, np.subtract(self.logprobs(case["prompt"]), expected)), default=0)
            assert worst < 1e-4, (case["name"], worst)


def make_cases(model, random):
    draw = lambda count: [int(token) for token in random.integers(3, 300, count)]
    cases = []
    # Prompts that fill no page, some pages, pages exactly, and several chunks.
    for prompt_tokens in (1, 40, 64, 96, 150):
        prompt = draw(prompt_tokens)
        choices = [draw(count) for count in (1, 1, 2, 5, 40)]
        choices.append(choices[2][:1])  # one begins like another
        logprobs = [model.logprobs(prompt + choice)[len(prompt) - 1:] for choice in choices]
        cases.append({"name": f"p{prompt_tokens}", "prompt": prompt, "choices": choices,
                      "logprobs": logprobs})
    return cases


def main():
    (HERE / "choices").mkdir(exist_ok=True)
    for name in ("llama", "mistral"):
        model = Model(name)
        model.check()
        document = {"format": "oracle/1", "cases": make_cases(model, np.random.default_rng(7))}
        (HERE / "choices" / f"{name}.json").write_text(json.dumps(document) + "\n")


if __name__ == "__main__":
    main()
