#!/usr/bin/env python3
"""Makes golden cases for sampling: logits, options, and what each step of the options leaves of them.

    python make_sampling_oracles.py --out sampling/cases.json

Needs numpy alone. Every step works on the whole vocabulary in float64, straight from its public
definition: bad words and minimum tokens, logit bias, the penalties and min-p as vLLM's sampling
parameters document them, repetition penalty as CTRL (Keskar et al. 2019, section 4.1) with the sign
rule of Hugging Face's RepetitionPenaltyLogitsProcessor, frequency and presence penalty as OpenAI's
API reference, top-p as nucleus sampling (Holtzman et al. 2020, section 3.1).
"""

import argparse
import json
import pathlib

import numpy as np

VOCABULARY = 48
NUM_CASES = 40


def banned_tokens(options, output):
    banned = []
    for word in options["bad_words"]:
        head = word[:-1]
        if not head or output[-len(head):] == head:
            banned.append(word[-1])
    if len(output) < options["min_tokens"]:
        banned += options["end_tokens"]
    return banned


def adjust(logits, options, prompt, output):
    logits = logits.copy()
    logits[banned_tokens(options, output)] = -np.inf
    for token, bias in options["logit_bias"]:
        logits[token] += bias
    for token in set(prompt) | set(output):
        penalty = options["repetition_penalty"]
        logits[token] = logits[token] / penalty if logits[token] > 0 else logits[token] * penalty
    counts = np.bincount(np.array(output, dtype=int), minlength=VOCABULARY)
    logits -= options["frequency_penalty"] * counts
    logits -= options["presence_penalty"] * (counts > 0)
    return logits


def softmax(logits):
    weights = np.exp(logits - np.max(logits))
    return weights / weights.sum()


def distribution(logits, options):
    """Probabilities of the draw over adjusted logits."""
    if options["temperature"] == 0:
        return np.eye(VOCABULARY)[np.argmax(logits)]
    logits = logits / options["temperature"]
    probabilities = softmax(logits)
    logits[probabilities < options["min_p"] * probabilities.max()] = -np.inf
    if options["top_k"] > 0:
        logits[logits < np.sort(logits)[-options["top_k"]]] = -np.inf
    probabilities = softmax(logits)
    order = np.argsort(-probabilities)
    before = np.cumsum(probabilities[order]) - probabilities[order]
    logits[order[before >= options["top_p"]]] = -np.inf
    return softmax(logits)


def draw_options(random, index):
    """Every option alone in the first cases, several together in the others."""
    everything = {
        "temperature": round(random.uniform(0.5, 1.8), 2),
        "min_p": round(random.uniform(0.02, 0.25), 3),
        "top_k": int(random.integers(2, 30)),
        "top_p": round(random.uniform(0.5, 0.97), 3),
        "repetition_penalty": round(random.uniform(0.6, 2.0), 2),
        "frequency_penalty": round(random.uniform(-0.8, 0.8), 2),
        "presence_penalty": round(random.uniform(-1.5, 1.5), 2),
        "min_tokens": int(random.integers(0, 16)),
        "logit_bias": [[int(token), round(random.uniform(-3, 3), 2)]
                       for token in random.choice(VOCABULARY, 6, replace=False)],
    }
    options = {"temperature": 1.0, "min_p": 0.0, "top_k": 0, "top_p": 1.0,
               "repetition_penalty": 1.0, "frequency_penalty": 0.0, "presence_penalty": 0.0,
               "min_tokens": 0, "logit_bias": [], "bad_words": [],
               "end_tokens": [int(token) for token in random.choice(VOCABULARY, 3, replace=False)]}
    names = sorted(everything)
    chosen = [names[index]] if index < len(names) else \
        [name for name in names if random.random() < 0.6]
    options |= {name: everything[name] for name in chosen}
    if index % 7 == 6:
        options["temperature"] = 0.0
    return options


def add_bad_words(random, options, output):
    """Words that match now, nearly match, and match never."""
    length = min(len(output), 3)
    any_token = lambda: int(random.integers(VOCABULARY))
    options["bad_words"] = [[any_token()], [any_token() for _ in range(5)],
                            output[len(output) - length:] + [any_token()],
                            output[len(output) - 1:] + [any_token()],
                            [any_token()] + output[len(output) - length:] + [any_token()]]


def as_json(values):
    """Ten digits, which tell float32 values apart; infinities as null."""
    return [float(f"{value:.10g}") if np.isfinite(value) else None for value in values]


def make_case(random, index):
    logits = random.normal(0, 1.2, VOCABULARY).astype(np.float32).astype(np.float64)
    prompt = [int(token) for token in random.integers(VOCABULARY, size=random.integers(1, 20))]
    output = [int(token) for token in random.integers(VOCABULARY, size=random.integers(0, 24))]
    options = draw_options(random, index)
    if index % 3 == 2:
        add_bad_words(random, options, output)
    adjusted = adjust(logits, options, prompt, output)
    return {"name": f"case{index}", "options": options, "prompt": prompt, "output": output,
            "logits": as_json(logits), "adjusted": as_json(adjusted),
            "probabilities": as_json(distribution(adjusted, options)),
            "logprobs": as_json(np.log(softmax(logits)))}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=pathlib.Path, required=True)
    arguments = parser.parse_args()
    random = np.random.default_rng(20)
    cases = [make_case(random, index) for index in range(NUM_CASES)]
    document = {"format": "oracle/1", "vocabulary": VOCABULARY, "cases": cases}
    arguments.out.write_text(json.dumps(document, separators=(",", ":")) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
