"""llama.cpp for benches: built once into the cache folder, and the 1 B model as a GGUF file.

Making the model needs the PyPI package gguf (pip install gguf==0.19.0)."""

import os
import pathlib
import subprocess
import sys

CACHE = pathlib.Path(os.environ.get("NIGHTSHIFT_CACHE", pathlib.Path.home() / ".cache/nightshift"))
VERSION = "0.3.36"  # of llama-cpp-python, whose sdist holds llama.cpp
# The 1 B model: shape "1b" of engine/model/known_shapes.
WIDTH, FFN_WIDTH, LAYERS, HEADS, KV_HEADS, VOCABULARY = 2048, 8192, 16, 32, 8, 49152
KV_WIDTH = KV_HEADS * WIDTH // HEADS


def build_llamacpp():
    """Returns llama-batched-bench, built if it is not in the cache."""
    folder = CACHE / f"llamacpp-{VERSION}"
    executable = folder / "build" / "bin" / "llama-batched-bench"
    if executable.exists():
        return executable
    folder.mkdir(parents=True, exist_ok=True)
    print(f"building llama.cpp in {folder}", file=sys.stderr)
    quiet = {"check": True, "stdout": sys.stderr}
    subprocess.run([sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--no-binary",
                    ":all:", "--dest", folder, f"llama-cpp-python=={VERSION}"], **quiet)
    subprocess.run(["tar", "-xzf", next(folder.glob("*.tar.gz")), "-C", folder], **quiet)
    off = ["BUILD_SHARED_LIBS", "LLAMA_BUILD_TESTS", "LLAMA_BUILD_EXAMPLES", "LLAMA_BUILD_SERVER",
           "LLAMA_BUILD_APP", "LLAMA_BUILD_UI", "LLAMA_USE_PREBUILT_UI", "LLAMA_CURL"]
    subprocess.run(["cmake", "-G", "Ninja", "-S", next(folder.glob("*/vendor/llama.cpp")), "-B",
                    folder / "build", "-DCMAKE_BUILD_TYPE=Release", "-DGGML_NATIVE=ON",
                    *(f"-D{name}=OFF" for name in off)], **quiet)
    subprocess.run(["cmake", "--build", folder / "build", "--target", "llama-batched-bench"],
                   **quiet)
    return executable


def tensors_of_1b():
    """Yields (name, shape) of the matrices: an untied head, as many layers as make 1.17 B."""
    yield "token_embd.weight", (VOCABULARY, WIDTH)
    for layer in range(LAYERS):
        for name, shape in [("attn_q", (WIDTH, WIDTH)), ("attn_k", (KV_WIDTH, WIDTH)),
                            ("attn_v", (KV_WIDTH, WIDTH)), ("attn_output", (WIDTH, WIDTH)),
                            ("ffn_gate", (FFN_WIDTH, WIDTH)), ("ffn_up", (FFN_WIDTH, WIDTH)),
                            ("ffn_down", (WIDTH, FFN_WIDTH))]:
            yield f"blk.{layer}.{name}.weight", shape
    yield "output.weight", (VOCABULARY, WIDTH)


def norms_of_1b():
    yield "output_norm.weight"
    for layer in range(LAYERS):
        yield f"blk.{layer}.attn_norm.weight"
        yield f"blk.{layer}.ffn_norm.weight"


def random_bf16(random, count):
    bits = random.integers(0, 1 << 16, count, dtype="uint16")
    # Sign and fraction are random; 2^-6 as exponent keeps the activations near 1.
    return (bits & 0x807F | 0x3C80).view("uint8")


def random_blocks(code_bytes, scale):
    """Of 32 elements: a half as scale, then random codes."""
    def make(random, count):
        import numpy

        blocks = random.integers(0, 256, (count // 32, 2 + code_bytes), dtype="uint8")
        blocks[:, :2] = numpy.array([scale], "<f2").view("uint8")
        return blocks.reshape(-1)
    return make


# Bytes of 32 elements, and what makes them, by the name of GGUF's type.
KINDS_OF_1B = {"BF16": (64, random_bf16), "Q4_0": (18, random_blocks(16, 0.0034)),
               "Q8_0": (34, random_blocks(32, 0.00021))}


def make_1b(tokenizer_gguf, kind="BF16"):
    """Returns the 1 B model, made if it is not in the cache. Its tokenizer is SmolLM2's."""
    path = CACHE / f"random-1b-{kind.lower()}.gguf"
    if path.exists():
        return path
    import gguf
    import numpy

    print(f"making {path}", file=sys.stderr)
    aside = path.with_suffix(".partial")
    writer = gguf.GGUFWriter(aside, "llama")
    writer.add_block_count(LAYERS)
    writer.add_context_length(2048)
    writer.add_embedding_length(WIDTH)
    writer.add_feed_forward_length(FFN_WIDTH)
    writer.add_head_count(HEADS)
    writer.add_head_count_kv(KV_HEADS)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_rope_freq_base(10000.0)
    writer.add_rope_dimension_count(WIDTH // HEADS)
    writer.add_vocab_size(VOCABULARY)
    for field in gguf.GGUFReader(tokenizer_gguf).fields.values():
        if field.name.startswith("tokenizer."):
            kinds = field.types
            writer.add_key_value(field.name, field.contents(), kinds[0],
                                 sub_type=kinds[1] if len(kinds) > 1 else None)
    block_bytes, random_bytes = KINDS_OF_1B[kind]
    for name, (rows, columns) in tensors_of_1b():
        row_bytes = columns // 32 * block_bytes
        writer.add_tensor_info(name, (rows, row_bytes), numpy.dtype("uint8"), rows * row_bytes,
                               raw_dtype=gguf.GGMLQuantizationType[kind])
    for name in norms_of_1b():
        writer.add_tensor_info(name, (WIDTH,), numpy.dtype("float32"), 4 * WIDTH)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_ti_data_to_file()
    random = numpy.random.default_rng(1)
    for _, (rows, columns) in tensors_of_1b():
        writer.write_tensor_data(random_bytes(random, rows * columns))
    for _ in norms_of_1b():
        writer.write_tensor_data(numpy.ones(WIDTH, numpy.float32))
    writer.close()
    aside.rename(path)
    return path
