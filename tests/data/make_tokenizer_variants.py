#!/usr/bin/env python3
"""Goldens for the parts of tokenizer.json that the kinds in tokenizers/ do not use.

usage: make_tokenizer_variants.py (pip install tokenizers==0.22.2); writes tokenizers/unigram,
tokenizers/unigram_bytes and tokenizers/variants.json.

A variant is a kind whose top-level members `changes` replace (members of "model" one by one). For
all of them the same `texts` are encoded and the same lists of `ids` decoded, by the tokenizers
package: `encoded` has the ids of each text, `decoded` and `decoded_skip_special` the text of each
list. Ids beyond a vocabulary are dropped, as the package does.
"""
import copy
import json
import pathlib
import random

from tokenizers import AddedToken, Tokenizer, models, pre_tokenizers, trainers

FOLDER = pathlib.Path(__file__).resolve().parent / "tokenizers"
META = "\u2581"
STRINGS = [case["text"] for case in json.loads((FOLDER / "gpt2/tokens.json").read_text())["cases"]]
SPACES = [" ", "  ", "   ", "\n", "\t", "\u3000", "\u00a0", META, META * 2]
ADDED = ["<added>", "<left>", "<right>", "<word>", "<n>", "<N K>", "<nl>", "<nr>", "<nw>", "<lr>",
         "<w>", "\u00e9", "\ufb01!", META * 2 + "x", "<0x41>", "<|im_end|>"]
ODD = ["a", "e", "1", "12", "-", "\u00e9", "e\u0301", "\u00bd", "\u00b2", "\uff11", "\ufb01", "\u0130",
       "\u212a", "\uac00", "\u1100\u1161\u11a8", "\u32ff", "\u4f60\u597d", "\U0001f600", "\u043c"]


def make_texts(rng, count):
    def word():
        kind = rng.random()
        if kind < 0.35:
            text = rng.choice(STRINGS)
            start = rng.randrange(len(text)) if text else 0
            return text[start:start + rng.randint(1, 10)]
        return rng.choice(ADDED if kind < 0.55 else SPACES if kind < 0.8 else ODD)
    return ["", " ", "a", "  a b "] + ["".join(word() for _ in range(rng.randint(1, 9)))
                                       for _ in range(count - 4)]


def make_ids(rng, count):
    small = lambda: rng.randrange(0, 270)
    any_id = lambda: rng.randrange(0, 1420)
    return [[(small if rng.random() < 0.6 else any_id)() for _ in range(rng.randint(0, 9))]
            for _ in range(count)]


def train_unigram(byte_tokens):
    tokenizer = Tokenizer(models.Unigram())
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace()
    special = ["<unk>", "<s>", "</s>", "<|im_end|>"] + byte_tokens
    tokenizer.train_from_iterator(
        [text for text in STRINGS if text.strip()] * 3,
        trainers.UnigramTrainer(vocab_size=600 + len(special), special_tokens=special,
                                unk_token="<unk>", show_progress=False))
    document = json.loads(tokenizer.to_str())
    document["added_tokens"] = [token for token in document["added_tokens"]
                                if token["content"] not in byte_tokens]
    document["model"]["byte_fallback"] = bool(byte_tokens)
    document["decoder"] = metaspace("always", True)
    if byte_tokens:
        document["decoder"] = decoder(
            replace(META, " "), plain("ByteFallback"), plain("Fuse"),
            {"type": "Strip", "content": " ", "start": 1, "stop": 0})
    return document


def replace(old, new, kind="String"):
    return {"type": "Replace", "pattern": {kind: old}, "content": new}


def metaspace(scheme, split):
    return {"type": "Metaspace", "replacement": META, "prepend_scheme": scheme, "split": split}


def normalizer(*members):
    return {"type": "Sequence", "normalizers": list(members)}


def pre_tokenizer(*members):
    return {"type": "Sequence", "pretokenizers": list(members)}


def decoder(*members):
    return {"type": "Sequence", "decoders": list(members)}


def byte_level(add_prefix_space=False):
    return {"type": "ByteLevel", "add_prefix_space": add_prefix_space, "trim_offsets": True,
            "use_regex": True}


def split(pattern, behavior, invert=False, kind="Regex"):
    return {"type": "Split", "pattern": {kind: pattern}, "behavior": behavior, "invert": invert}


def plain(name):
    return {"type": name}


BEHAVIORS = ["Isolated", "Removed", "MergedWithPrevious", "MergedWithNext", "Contiguous"]
NO_BYTES = {"byte_fallback": False}


def variants():
    yield "no_bytes", "llama2", {"model": NO_BYTES}
    yield "no_bytes_no_fuse", "llama2", {"model": {**NO_BYTES, "fuse_unk": False}}
    yield "no_bytes_no_unk", "llama2", {"model": {**NO_BYTES, "unk_token": None}}
    yield "ignore_merges", "llama2", {"model": {"ignore_merges": True}, "normalizer": None,
                                      "pre_tokenizer": metaspace("always", True)}
    for name in ["NFC", "NFD", "NFKC", "NFKD"]:
        yield name, "llama2", {"normalizer": normalizer(plain(name), replace(" ", META))}
    yield "lowercase", "llama2", {"normalizer": normalizer(
        plain("Lowercase"), {"type": "Prepend", "prepend": META}, replace(" ", META))}
    for left, right in [(True, True), (True, False), (False, True)]:
        yield f"strip_{left}_{right}", "llama2", {
            "normalizer": {"type": "Strip", "strip_left": left, "strip_right": right},
            "pre_tokenizer": metaspace("first", False)}
    yield "replace_pattern", "llama2", {"normalizer": normalizer(
        replace(" {2,}", " ", "Regex"), replace(r"\s+", META, "Regex"))}
    yield "replace_by_nothing", "llama2", {"normalizer": normalizer(replace("e", "")),
                                           "pre_tokenizer": metaspace("first", True)}
    for scheme in ["always", "first", "never"]:
        for cut in [True, False]:
            yield f"metaspace_{scheme}_{cut}", "llama2", {
                "normalizer": None, "pre_tokenizer": metaspace(scheme, cut)}
    yield "spaces_removed", "llama2", {"normalizer": None, "pre_tokenizer": pre_tokenizer(
        plain("WhitespaceSplit"), metaspace("first", False))}
    for behavior in BEHAVIORS:
        for invert in [False, True]:
            yield f"split_{behavior}_{invert}", "llama2", {
                "normalizer": None, "pre_tokenizer": split("[aeiou ]", behavior, invert)}
        yield f"split_text_{behavior}", "llama2", {"normalizer": None, "pre_tokenizer": pre_tokenizer(
            split("e", behavior, kind="String"), metaspace("first", True))}
        yield f"punctuation_{behavior}", "gpt2", {"pre_tokenizer": pre_tokenizer(
            {"type": "Punctuation", "behavior": behavior}, byte_level())}
    yield "falcon", "gpt2", {"pre_tokenizer": pre_tokenizer(
        {"type": "Punctuation", "behavior": "Contiguous"}, byte_level(),
        {"type": "Digits", "individual_digits": False}, split("[0-9][0-9][0-9]", "Isolated"))}
    yield "digits_behind_bytes", "gpt2", {"pre_tokenizer": pre_tokenizer(
        byte_level(True), {"type": "Digits", "individual_digits": True})}
    yield "prefix_behind_digits", "gpt2", {"pre_tokenizer": pre_tokenizer(
        {"type": "Digits", "individual_digits": False}, byte_level(True))}
    yield "decode_metaspace", "llama2", {"decoder": metaspace("always", True)}
    yield "decode_metaspace_bytes", "llama2", {"decoder": decoder(
        metaspace("never", True), plain("ByteFallback"), plain("Fuse"))}
    yield "decode_replacements", "llama2", {"decoder": decoder(
        replace(META, " "), replace("  ", "~"), plain("ByteFallback"), plain("Fuse"),
        {"type": "Strip", "content": " ", "start": 3, "stop": 0})}
    yield "decode_unfused", "llama2", {"decoder": decoder(
        replace(META, " "), plain("ByteFallback"))}
    yield "unigram", "unigram", {}
    yield "unigram_first", "unigram", {"pre_tokenizer": metaspace("first", False)}
    yield "unigram_nfkc", "unigram", {"normalizer": plain("NFKC")}
    yield "unigram_bytes", "unigram_bytes", {}
    yield "unigram_bytes_whole", "unigram_bytes", {"pre_tokenizer": metaspace("always", False)}
    for base in ["gpt2", "qwen2", "llama2", "mistral_metaspace", "gemma", "unigram"]:
        yield f"added_{base}", base, {"added_tokens": "more"}


def more_added_tokens(document):
    tokenizer = Tokenizer.from_str(json.dumps(document))
    tokenizer.add_tokens([
        AddedToken("<n>", normalized=True), AddedToken("<N K>", normalized=True),
        AddedToken("<nl>", normalized=True, lstrip=True),
        AddedToken("<nr>", normalized=True, rstrip=True),
        AddedToken("<nw>", normalized=True, single_word=True),
        AddedToken("<lr>", normalized=False, lstrip=True, rstrip=True),
        AddedToken("<w>", normalized=False, single_word=True, lstrip=True),
        AddedToken("  ", normalized=False), AddedToken("\u00e9", normalized=False),
        AddedToken("\ufb01!", normalized=True), AddedToken(META * 2 + "x", normalized=False)])
    return json.loads(tokenizer.to_str())["added_tokens"]


def apply(document, changes):
    document = copy.deepcopy(document)
    for name, value in changes.items():
        if name == "model":
            document["model"].update(value)
        else:
            document[name] = value
    return document


def main():
    bases = {kind: json.loads((FOLDER / kind / "tokenizer.json").read_text())
             for kind in ["gpt2", "qwen2", "llama2", "mistral_metaspace", "gemma"]}
    byte_tokens = [f"<0x{byte:02X}>" for byte in range(256)]
    for kind, tokens in [("unigram", []), ("unigram_bytes", byte_tokens)]:
        bases[kind] = train_unigram(tokens)
        (FOLDER / kind).mkdir(exist_ok=True)
        (FOLDER / kind / "tokenizer.json").write_text(json.dumps(bases[kind]))
    rng = random.Random(5)
    texts, ids = make_texts(rng, 48), make_ids(rng, 40)
    goldens = []
    for name, base, changes in variants():
        if changes.get("added_tokens") == "more":
            changes = {"added_tokens": more_added_tokens(bases[base])}
        tokenizer = Tokenizer.from_str(json.dumps(apply(bases[base], changes)))
        goldens.append({
            "name": name, "base": base, "changes": changes,
            "encoded": [tokenizer.encode(text, add_special_tokens=False).ids for text in texts],
            "decoded": [tokenizer.decode(entry, skip_special_tokens=False) for entry in ids],
            "decoded_skip_special": [tokenizer.decode(entry) for entry in ids]})
    document = {"format": "oracle/1", "texts": texts, "ids": ids, "variants": goldens}
    (FOLDER / "variants.json").write_text(json.dumps(document, separators=(",", ":")))
    print(len(goldens), "variants", (FOLDER / "variants.json").stat().st_size, "bytes")


if __name__ == "__main__":
    main()
