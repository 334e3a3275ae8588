"""Makes tests/data/gguf/NAME.gguf from tests/data/tiny/NAME with llama.cpp's own converter.

    python make_gguf_models.py --llama-cpp DIR [--only NAME]

DIR is vendor/llama.cpp of the source distribution of the PyPI package llama-cpp-python (0.3.36 was
used); the converter needs torch, transformers (4.57.1) and sentencepiece. The files hold the same
weights as the models that they are made from, so the goldens of tests/data/tiny hold for them too.

What the converter cannot take from these models is set here:
- the tokenizer: that of tests/data/tokenizers/qwen2, cut to the model's vocabulary;
- keys of GGUF that the converter does not write, because it knows the published models by their
  size: the score scale of Gemma 2 and 3, the layers of Gemma 3 that slide, Mistral's window;
- Falcon: num_kv_heads, which published files lack and this one counts otherwise, and the FFN width.

gemma3 is left out: gemma3_linear has all of it and the scaling.
qwen3_moe is left out: GGUF's architecture has no dense layers; qwen3_moe_sparse has none.
"""

import argparse
import json
import pathlib
import sys
import tempfile

DATA = pathlib.Path(__file__).parent


def gemma_keys(writer, config):
    writer.add_attention_scale(config["query_pre_attn_scalar"] ** -0.5)
    writer.add_sliding_window_pattern([t == "sliding_attention" for t in config["layer_types"]])


# name: what is added to the keys.
MODELS = {
    "llama_yarn_rope": None,
    "mistral": lambda writer, config: writer.add_sliding_window(config["sliding_window"]),
    "qwen2": None,
    "qwen3": None,
    "gemma2": gemma_keys,
    "gemma3_linear": gemma_keys,
    "phi3": None,
    "olmo2": None,
    "granite": None,
    "stablelm": None,
    "gpt_neox": None,
    "falcon": lambda writer, config: writer.add_feed_forward_length(config["ffn_hidden_size"]),
    "mixtral": None,
    "qwen3_moe_sparse": None,
}


def cut_tokenizer(vocabulary):
    tokenizer = json.loads((DATA / "tokenizers/qwen2/tokenizer.json").read_text())
    model = tokenizer["model"]
    model["vocab"] = {text: i for text, i in model["vocab"].items() if i < vocabulary}
    pairs = [merge if isinstance(merge, list) else merge.split(" ") for merge in model["merges"]]
    model["merges"] = [p for p in pairs if all(t in model["vocab"] for t in (*p, "".join(p)))]
    tokenizer["added_tokens"] = [t for t in tokenizer["added_tokens"] if t["id"] < vocabulary]
    return tokenizer


def write_source(name, folder):
    """The model as the converter reads it; returns its config."""
    config = json.loads((DATA / "tiny" / name / "config.json").read_text())
    changed = {"num_kv_heads": 1} if "num_kv_heads" in config else {}
    (folder / "config.json").write_text(json.dumps(config | changed))
    for file in (DATA / "tiny" / name).glob("model*"):
        (folder / file.name).symlink_to(file.resolve())
    (folder / "tokenizer.json").write_text(json.dumps(cut_tokenizer(config["vocab_size"])))
    (folder / "tokenizer_config.json").write_text('{"tokenizer_class": "PreTrainedTokenizerFast"}')
    return config


def convert(name, add_keys):
    import gguf
    import torch
    from conversion import ModelBase, TextModel, get_model_class

    with tempfile.TemporaryDirectory() as temporary, torch.inference_mode():
        folder = pathlib.Path(temporary) / name
        folder.mkdir()
        config = write_source(name, folder)
        known = get_model_class(config["architectures"][0])

        class Tiny(known):
            model_arch = known.model_arch

            def set_vocab(self):
                TextModel._set_vocab_gpt2(self)

            def get_vocab_base_pre(self, tokenizer):
                return "qwen2"

            def set_gguf_parameters(self):
                super().set_gguf_parameters()
                if add_keys is not None:
                    add_keys(self.gguf_writer, config)

        is_f16 = config["dtype"] == "float16"
        file_type = gguf.LlamaFileType.MOSTLY_F16 if is_f16 else gguf.LlamaFileType.MOSTLY_BF16
        Tiny(folder, file_type, DATA / "gguf" / f"{name}.gguf", model_name=name).write()


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--llama-cpp", required=True)
    parser.add_argument("--only")
    arguments = parser.parse_args()
    sys.path[:0] = [arguments.llama_cpp, arguments.llama_cpp + "/gguf-py"]
    (DATA / "gguf").mkdir(exist_ok=True)
    for name, add_keys in MODELS.items():
        if arguments.only in (None, name):
            convert(name, add_keys)


if __name__ == "__main__":
    main()
