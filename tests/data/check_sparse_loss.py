#!/usr/bin/env python3
"""What sparse attention costs SmolLM2-135M-Instruct, without our code: the perplexity of the four texts of
smollm2/logprobs.json in float32 (the forward pass of check_int4_loss.py) where each token but a text's first adds up a
share of the values only, as make_sparse_oracles.py has it.

    python check_sparse_loss.py SmolLM2-135M-Instruct.Q4_1.gguf [SHARE]        # 0.1; needs numpy and gguf; a minute
"""

import sys

import numpy as np

from check_int4_loss import HERE, Model, json, read


class SparseModel(Model):
    share = 0.1

    def attention(self, x, at):
        heads, kv_heads, rows = self.config["heads"], self.config["kv_heads"], len(x)
        split = lambda which, count: self.times(x, at + "attn_" + which).reshape(rows, count, -1)
        q, k, v = self.rotate(split("q", heads)), self.rotate(split("k", kv_heads)), split("v", kv_heads)
        mixed = np.empty_like(q)
        for head in range(heads):
            group = head // (heads // kv_heads)
            scores = q[:, head] @ k[:, group].T / np.float32(np.sqrt(q.shape[-1]))
            for row in range(rows):
                weights = np.exp(scores[row, :row + 1] - scores[row, :row + 1].max())
                weights /= weights.sum()
                kept = np.argsort(-weights[:-1], kind="stable")[:int(self.share * row)]
                chosen = np.append(kept, row)
                mixed[row, head] = weights[chosen] @ v[chosen, group]
        return self.times(mixed.reshape(rows, -1), at + "attn_output")


def main():
    config, weights = read(sys.argv[1])
    if len(sys.argv) > 2:
        SparseModel.share = float(sys.argv[2])
    texts = [np.array(case["prompt"]) for case in json.loads((HERE / "smollm2" / "logprobs.json").read_text())["cases"]]
    dense, sparse = (np.exp(-np.concatenate([kind(config, weights).logprobs(text) for text in texts]).mean())
                     for kind in (Model, SparseModel))
    print(f"all values: perplexity {dense:.2f}; {SparseModel.share} of them: {sparse:.2f}, x {sparse / dense:.3f}")


if __name__ == "__main__":
    main()
