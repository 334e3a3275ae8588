#!/usr/bin/env python3
"""Writes the seeds of the fuzzers: make_seeds.py BUILD_FOLDER OUTPUT_FOLDER [TARGET...].

Each target gets OUTPUT_FOLDER/TARGET/seeds and OUTPUT_FOLDER/TARGET/words.dict. Seeds are the files
of tests/data cut small, variations of them in which one member is missing or odd, and the cases that
the unit tests have in string literals; the words are those that occur in the seeds.
"""

import ast
import base64
import collections
import copy
import hashlib
import json
import pathlib
import re
import shutil
import struct
import subprocess
import sys

TESTS = pathlib.Path(__file__).resolve().parent.parent
DATA = TESTS / "data"
SEPARATOR = b"\x1e"  # fuzz_input.h
ODD_VALUES = [None, -1, 0, 2**63, 1e300, True, "", "x", [], {}, [[]], [1, "a"]]
MAX_VARIATIONS = 400
MAX_WORDS = 600


def join(*parts):
    return SEPARATOR.join(p if isinstance(p, bytes) else p.encode() for p in parts)


def literals(path):
    """The string literals of a C++ file; neighbours are joined as the compiler does."""
    text = path.read_text(encoding="utf-8")
    token = re.compile(r'R"(\w*)\((.*?)\)\1"|"((?:\\.|[^"\\\n])*)"|//[^\n]*', re.DOTALL)
    found, end = [], -1
    for match in token.finditer(text):
        if match.group(0).startswith("//"):
            continue
        value = match.group(2)
        if value is None:
            try:
                value = ast.literal_eval('"' + match.group(3) + '"')
            except (SyntaxError, ValueError):
                continue
        if found and end >= 0 and text[end:match.start()].strip() == "":
            found[-1] += value
        else:
            found.append(value)
        end = match.end()
    return found


def unit_tests(pattern):
    """The literals of all unit tests that the pattern names."""
    return [literal for path in sorted(TESTS.glob(pattern)) for literal in literals(path)]


def variations(document):
    """`document` without each of its members, and with each of them odd; evenly thinned out."""
    def places(value, path=()):
        if path:
            yield path
        items = value.items() if isinstance(value, dict) else \
            enumerate(value) if isinstance(value, list) else ()
        for key, child in list(items)[:12]:
            yield from places(child, path + (key,))

    def changed(path, change):
        copied = copy.deepcopy(document)
        parent = copied
        for key in path[:-1]:
            parent = parent[key]
        change(parent, path[-1])
        return copied

    changes = [(path, lambda parent, key: parent.pop(key)) for path in places(document)]
    changes += [(path, lambda parent, key, odd=odd: parent.__setitem__(key, odd))
                for path in places(document) for odd in ODD_VALUES]
    step = max(1, -(-len(changes) // MAX_VARIATIONS))
    return [changed(path, change) for path, change in changes[::step]]


def compact(document):
    return json.dumps(document, separators=(",", ":"))


def safetensors_header():
    def tensors(*shapes):
        header, offset = {}, 0
        for i, (dtype, shape, size) in enumerate(shapes):
            header[f"layers.{i}.weight"] = {"dtype": dtype, "shape": shape,
                                            "data_offsets": [offset, offset + size]}
            offset += size
        return header, offset

    good, size = tensors(("F32", [2, 3], 24), ("BF16", [4], 8), ("F16", [1, 1, 2], 4))
    good["__metadata__"] = {"format": "pt"}
    prefix = struct.pack("<H", size)
    yield prefix + compact(good).encode()
    for document in variations(good):
        yield prefix + compact(document).encode()
    for literal in unit_tests("engine/model/safetensors_test.cc"):
        if literal.startswith(("{", "[")):
            yield struct.pack("<H", 16) + literal.encode("utf-8", "surrogatepass")
            yield struct.pack("<Q", len(literal)) + literal.encode() + bytes(16)


def gguf_text(text):
    data = text if isinstance(text, bytes) else text.encode()
    return struct.pack("<Q", len(data)) + data


class Gguf:
    """A GGUF file's head, from https://github.com/ggml-org/ggml/blob/master/docs/gguf.md."""

    FORMATS = {0: "<B", 1: "<b", 2: "<H", 3: "<h", 4: "<I", 5: "<i", 6: "<f", 7: "<?", 10: "<Q",
               11: "<q", 12: "<d"}
    BLOCKS = {0: (1, 4), 1: (1, 2), 2: (32, 18), 3: (32, 20), 6: (32, 22), 7: (32, 24), 8: (32, 34),
              10: (256, 84), 11: (256, 110), 12: (256, 144), 13: (256, 176), 14: (256, 210),
              16: (256, 66), 30: (1, 2)}

    def __init__(self):
        self.keys, self.tensors, self.offset = [], [], 0

    def key(self, name, kind, value):
        encode = gguf_text if kind == 8 else lambda v: struct.pack(self.FORMATS[kind], v)
        if isinstance(value, list):
            body = struct.pack("<IIQ", 9, kind, len(value)) + b"".join(map(encode, value))
        else:
            body = struct.pack("<I", kind) + encode(value)
        self.keys.append(gguf_text(name) + body)

    def tensor(self, name, shape, kind):
        per_block, block_bytes = self.BLOCKS[kind]
        self.tensors.append(gguf_text(name) + struct.pack("<I", len(shape)) +
                            struct.pack(f"<{len(shape)}Q", *shape) + struct.pack("<IQ", kind, self.offset))
        count = shape[0]
        for size in shape[1:]:
            count *= size
        self.offset += -(-(count // per_block * block_bytes) // 32) * 32

    def head(self, version=3):
        return (b"GGUF" + struct.pack("<IQQ", version, len(self.tensors), len(self.keys)) +
                b"".join(self.keys + self.tensors)).ljust(32, b"\0")


def gguf_model(architecture="llama", kind=8, vocabulary=264, tokenizer=("gpt2", "gpt-2")):
    file = Gguf()
    file.key("general.architecture", 8, architecture)
    for name, value in (("block_count", 1), ("embedding_length", 32), ("feed_forward_length", 32),
                        ("attention.head_count", 2), ("context_length", 64)):
        file.key(f"{architecture}.{name}", 4, value)
    file.key(f"{architecture}.attention.layer_norm_rms_epsilon", 6, 1e-5)
    if tokenizer is not None:
        tokens = [chr(0x21 + i) if i < 94 else f"<0x{i:02X}>" for i in range(vocabulary)]
        tokens[200:203] = ["He", "ll", "<|end|>"]
        file.key("tokenizer.ggml.model", 8, tokenizer[0])
        file.key("tokenizer.ggml.pre", 8, tokenizer[1])
        file.key("tokenizer.ggml.tokens", 8, tokens)
        file.key("tokenizer.ggml.scores", 6, [-float(i) for i in range(vocabulary)])
        file.key("tokenizer.ggml.token_type", 5, [1 if i != 202 else 3 for i in range(vocabulary)])
        file.key("tokenizer.ggml.merges", 8, ["H e", "l l"])
        file.key("tokenizer.ggml.eos_token_id", 4, 202)
        file.key("tokenizer.ggml.add_bos_token", 7, False)
        file.key("tokenizer.chat_template", 8, "{% for m in messages %}{{ m.content }}{% endfor %}")
    square = [32, 32] if kind in (0, 1, 2, 3, 6, 7, 8, 30) else [256, 32]
    file.tensor("token_embd.weight", [32, vocabulary], 2)
    for name in ("output_norm", "blk.0.attn_norm", "blk.0.ffn_norm"):
        file.tensor(name + ".weight", [32], 0)
    for name in ("attn_q", "attn_k", "attn_v", "attn_output", "ffn_gate", "ffn_up", "ffn_down"):
        file.tensor(f"blk.0.{name}.weight", square, kind)
    return file


def gguf():
    for kind in Gguf.BLOCKS:
        yield gguf_model(kind=kind, tokenizer=None).head()
    for architecture in ("llama", "qwen2", "qwen3", "gemma2", "gemma3", "phi3", "gptneox", "falcon",
                         "granite", "stablelm", "olmo2", "opt"):
        yield gguf_model(architecture, 0, tokenizer=None).head(version=2)
    for model, pre in (("gpt2", "gpt-2"), ("gpt2", "llama-bpe"), ("gpt2", "qwen2"), ("gpt2", "smollm"),
                       ("llama", "default"), ("t5", "default"), ("bert", "default")):
        yield gguf_model(tokenizer=(model, pre)).head()
    odd = Gguf()
    for kind in Gguf.FORMATS:
        odd.key(f"number.{kind}", kind, 1)
        odd.key(f"array.{kind}", kind, [1, 0])
    odd.key("texts", 8, ["", b"\xff", "a\0b"])
    yield odd.head()
    for length in range(0, 96, 4):
        yield gguf_model(tokenizer=None).head()[:length]


def small_tokenizer(document):
    """A published tokenizer.json with the first tokens of its vocabulary only."""
    keep = 300
    model = document["model"]
    if isinstance(model.get("vocab"), dict):
        vocabulary = sorted(model["vocab"].items(), key=lambda entry: entry[1])[:keep]
        model["vocab"] = {text: i for i, (text, _) in enumerate(vocabulary)}
    elif isinstance(model.get("vocab"), list):
        model["vocab"] = model["vocab"][:keep]
    if "merges" in model:
        pairs = [m.split(" ") if isinstance(m, str) else m for m in model["merges"]]
        model["merges"] = [m for m, pair in zip(model["merges"], pairs)
                           if {*pair, "".join(pair)} <= model["vocab"].keys()]
    size, ids = len(model["vocab"]), {}
    for token in document.get("added_tokens") or []:
        if token["id"] >= size:
            ids[token["id"]] = size + len(ids)
            token["id"] = ids[token["id"]]
    processor = document.get("post_processor") or {}
    for part in [processor] + processor.get("processors", []):
        for token in (part.get("special_tokens") or {}).values():
            if isinstance(token, dict):
                token["ids"] = [ids.get(i, i) for i in token["ids"]]
    return document


def minimal_tokenizer():
    return {"added_tokens": [{"id": 4, "content": "<|end|>", "special": True, "lstrip": True,
                              "rstrip": False, "single_word": True, "normalized": False}],
            "normalizer": {"type": "NFC"},
            "pre_tokenizer": {"type": "Sequence", "pretokenizers": [
                {"type": "Split", "pattern": {"Regex": "\\p{N}{1,3}| ?[^\\s]+"}, "behavior": "Isolated",
                 "invert": False},
                {"type": "ByteLevel", "add_prefix_space": False, "use_regex": False}]},
            "post_processor": {"type": "ByteLevel"}, "decoder": {"type": "ByteLevel"},
            "model": {"type": "BPE", "vocab": {"a": 0, "b": 1, "ab": 2, "\u0120": 3},
                      "merges": [["a", "b"]]}}


def tokenizer_json():
    text = "a ab\u00e9 12 <|end|>\n\u4f60\u597d\U0001f600 </s>"
    config = compact({"add_bos_token": False, "bos_token": None, "eos_token": {"content": "<|end|>"}})
    published = {path.parent.name: small_tokenizer(json.loads(path.read_text(encoding="utf-8")))
                 for path in sorted(DATA.glob("tokenizers/*/tokenizer.json"))}
    for document in [minimal_tokenizer(), *published.values()]:
        yield join(compact(document), "", text)
        yield join(compact(document), config, text)
    variants = json.loads((DATA / "tokenizers/variants.json").read_text(encoding="utf-8"))["variants"]
    for variant in variants:
        document = copy.deepcopy(published[variant["base"]])
        for key, value in variant["changes"].items():
            mergeable = isinstance(value, dict) and isinstance(document.get(key), dict)
            document[key] = {**document[key], **value} if mergeable else value
        yield join(compact(document), "", text)
    for document in variations(minimal_tokenizer()):
        yield join(compact(document), "", text)
    pieces = re.compile(r'"(/[a-z_/]+)",\s*(?:R"\((.*?)\)"|("(?:\\.|[^"\\\n])*"))', re.DOTALL)
    source = (TESTS / "engine/text/tokenizer_spec_test.cc").read_text(encoding="utf-8")
    for pointer, raw, quoted in pieces.findall(source):
        document = minimal_tokenizer()
        *path, last = pointer[1:].split("/")
        parent = document
        for key in path:
            parent = parent.get(key, {})
        try:
            parent[last] = json.loads(raw or ast.literal_eval(quoted))
        except ValueError:
            continue
        yield join(compact(document), "", text)


def model_config():
    generation = compact({"eos_token_id": [2, 7], "bos_token_id": 1, "temperature": 0.6})
    for path in sorted(DATA.glob("tiny/*/config.json")):
        document = json.loads(path.read_text(encoding="utf-8"))
        yield join(compact(document), "")
        yield join(compact(document), generation)
        for variation in variations(document)[::4]:
            yield join(compact(variation), "")


def hardware_profile():
    def curve(size, unit):
        return [{size: 1, unit: 1e9}, {size: 64, unit: 2e9, "spread": 0.1}]
    computing = {
        "matmul": [{"compute": "bf16", "weights": "BF16", "rates": curve("rows", "flops_per_s")}],
        "prompt_attention": [{"compute": "f32", "head_width": 128,
                              "rates": curve("tokens", "flops_per_s")}],
        "decode_attention": [{"compute": "bf16", "head_width": 64, "queries_per_kv_head": 4,
                              "rates": curve("positions", "bytes_per_s")}],
        "unpack": [{"weights": "Q4_K", "compute": "f32", "elements_per_s": 1e9}],
        "row_bytes_per_s": 1e10, "memory_bytes_per_s": 2e10, "step_seconds": 1e-5}
    nothing = {"matmul": [], "prompt_attention": [], "decode_attention": [], "unpack": [],
               "row_bytes_per_s": 0, "memory_bytes_per_s": 0, "step_seconds": 0}
    discrete = {
        "format": "nightshift-hardware-1", "name": "x", "source": "y",
        "date": "2024-01-02T03:04:05Z", "fingerprint": "disk: ext4", "unified_memory": False,
        "device_bytes": 1 << 34, "host_bytes": 1 << 37, "disk_bytes": 0,
        "disk_read": curve("bytes", "bytes_per_s"), "disk_write": curve("bytes", "bytes_per_s"),
        "disk_read_by_depth": curve("depth", "bytes_per_s"),
        "upload": curve("bytes", "bytes_per_s"), "download": curve("bytes", "bytes_per_s"),
        "pageable_upload_bytes_per_s": 0, "pageable_download_bytes_per_s": 1e9,
        "copy_bytes_per_s": 1e10, "device": computing, "host": computing,
        "spreads": {"copy_bytes_per_s": 0.2},
        "refinement": {"read": [0.1, -0.2], "host attention": [0]}}
    unified = {**discrete, "unified_memory": True, "device_bytes": 0, "upload": [], "download": [],
               "host": nothing}
    for document in (discrete, unified):
        yield compact(document).encode()
    for variation in variations(discrete):
        yield compact(variation).encode()


def pack_manifest(build):
    folders = sorted(path.parent for path in DATA.glob("tiny/*/config.json"))
    result = subprocess.run([build / "tests/fuzz/pack_manifest_seeds", *folders], check=True,
                            capture_output=True, text=True)
    manifests = [json.loads(line) for line in result.stdout.splitlines()]
    for manifest in manifests:
        yield compact(manifest).encode()
    for variation in variations(manifests[0]):
        yield compact(variation).encode()


def chat_template():
    messages = compact([{"role": "user", "content": "<b>\u00df <|im_end|>"},
                        {"role": "assistant", "content": "yes", "tool_calls": [{"name": "f"}]}])
    for path in sorted(DATA.glob("templates/*.json")):
        golden = json.loads(path.read_text(encoding="utf-8"))
        for source in golden.get("templates", {}).values():
            yield join(source, messages, "{}")
        for case in golden["cases"]:
            if "source" in case:
                yield join(case["source"], messages,
                           compact(case.get("context") or golden.get("context") or {}))
    for literal in unit_tests("engine/text/chat_template*_test.cc") + \
            unit_tests("engine/text/jinja/*_test.cc"):
        if "{{" in literal or "{%" in literal or "{#" in literal:
            yield literal.encode("utf-8", "surrogatepass")


def jsonl_row():
    plain = '{"id":"a","prompt":"hello",%s}'
    chat = ('{"custom_id":"a","method":"POST","url":"/v1/chat/completions",'
            '"body":{"messages":[{"role":"user","content":"hello"}],%s}}')
    completion = '{"custom_id":"a","method":"POST","url":"/v1/completions","body":{%s}}'
    for form in (plain, chat, completion):
        yield (form % '"prompt":"a","max_tokens":4,"stop":["x"],"logprobs":true').encode()
    for literal in unit_tests("server/input/*_test.cc"):
        data = literal.encode("utf-8", "surrogatepass")
        if literal.startswith("{"):
            yield data
            yield data + b"\r\n\n" + data
        elif literal.startswith('"') and len(literal) > 2:
            for form in (plain, chat, completion):
                yield (form % literal).encode("utf-8", "surrogatepass")
    for choices in ('[" good"," bad"]', '["a","ab","\\u00e4"]', "[[5,6],[5]]", '["", "x"]'):
        yield ('{"id":"a","prompt":"was it","choices":%s}' % choices).encode()
        yield ('{"id":"a","prompt":[7,8],"choices":%s}' % choices).encode()
        yield ('{"id":"a","messages":[{"role":"user","content":"was it"}],"choices":%s}' % choices).encode()
    # InferenceRequest: custom_id, a prompt, token ids, a chat.
    for fields in (b"\x0a\x01a\x12\x05hello", b"\x1a\x03\x0a\x01\x05", b"\x22\x0b\x0a\x09\x0a\x04user\x12\x01x"):
        yield bytes([len(fields)]) + fields


def csv():
    for literal in unit_tests("client/documents/*_test.cc"):
        if "," in literal or "\n" in literal:
            yield literal.encode("utf-8", "surrogatepass")[:4096]
    for text in ("", "\n\r\n", "a", 'a,"b\n""c""",d\r\ne', '"open', 'x"y', '"x"y,z\nw', "," * 300,
                 "\ufeffa,b", "long," + "x" * 100, '"' + '""' * 70 + '"'):
        yield text.encode()


def page_token():
    for name, token in (("", ""), ("jobs/all", "AAAA"), ("jobs/running", "x" * 700)):
        yield join(name, token)
    for size in (0, 15, 16, 17, 40):
        yield join("jobs", base64.urlsafe_b64encode(bytes(range(size))))


def field(number, value):
    """A field of a proto message: a number, or bytes that are a text or a message."""
    def varint(rest):
        out = bytearray()
        while rest > 0x7f:
            out.append(rest & 0x7f | 0x80)
            rest >>= 7
        return bytes(out) + bytes([rest])

    if isinstance(value, int):
        return varint(number << 3) + varint(value % 2**64)
    data = value.encode() if isinstance(value, str) else value
    return varint(number << 3 | 2) + varint(len(data)) + data


def service_request():
    """Calls of the methods of service_request_fuzz.cc, by their place there."""
    uuid = "0198c0de-0000-7000-8000-0000000000aa"
    ids = field(3, field(1, b"\x14\x15"))
    prompt = field(1, "row") + field(2, "hello")
    chat = field(4, field(1, field(1, "user") + field(2, "hello")))
    sampling = field(1, 4) + field(4, 3) + field(5, 7) + field(6, "x") + field(8, 1)
    spec = field(2, 2) + field(3, field(1, 60)) + field(6, sampling) + field(8, field(1, "k") + field(2, "v"))
    for row in (ids, prompt, chat):
        yield b"\x00" + field(3, spec) + field(4, row)
        yield b"\x00" + field(1, "job") + field(2, uuid) + field(4, row) * 3 + field(5, 1)
    yield b"\x00" + field(3, spec + field(9, field(1, 2**33)) + field(10, "22:00-06:00 UTC")) + field(4, ids)
    for magic in (b"\x07", b"\x08"):  # of the fake engine
        yield b"\x00" + field(3, spec) + field(4, field(3, field(1, magic)))
    data = b'{"id":"a","prompt":[20,21],"max_tokens":2}\n'
    header = field(1, field(2, uuid) + field(3, spec) + field(4, 1))
    crc = b"\x1d" + struct.pack("<I", crc32c(data))
    chunk = field(2, field(1, 0) + field(2, data) + crc)
    finish = field(3, field(1, len(data)) + field(2, hashlib.sha256(data).digest()))
    for parts in ((header, chunk, finish), (header, chunk), (chunk,), (header, finish), (header, header)):
        yield b"\x01" + join(*parts)
    yield b"\x02" + field(1, uuid)
    for job in ("jobs/done", "jobs/held", "jobs/none", "done", ""):
        for method in range(3, 13):
            yield bytes([method]) + field(1, job)
    yield b"\x04" + field(1, 1) + field(2, "x") + field(3, 3) + field(4, "k=v") + field(5, field(1, 5))
    yield b"\x04" + field(1, -1)
    yield b"\x05" + field(1, "jobs/held") + field(2, field(2, 1000)) + field(3, 2) + field(4, 9)
    yield b"\x06" + field(1, "jobs/held") + field(2, uuid) + field(3, "etag")
    yield b"\x09" + field(1, "jobs/done") + field(2, uuid)
    yield b"\x0a" + field(1, "jobs/held") + field(2, "etag") + field(3, 1) + field(4, 1)
    yield b"\x0b" + field(1, "jobs/done") + field(2, 1) + field(3, 1) + field(4, 2) + field(5, 1)
    yield b"\x0b" + field(1, "jobs/done") + field(2, 2**62) + field(5, -5)
    yield b"\x0d" + field(1, "llama")
    yield b"\x0e"
    for too_long, text in ((0, "abab"), (1, "ab " * 200), (2, "ab\n\nba. " * 60), (3, "\u00e4b " * 90)):
        place = field(2, 2) + field(3, len(text.encode()))
        yield (b"\x0f" + field(1, field(6, field(1, 4))) + field(2, field(1, "row") + field(2, "  " + text)) +
               field(3, place) + field(4, too_long) + field(5, 60) + field(6, 5))
    yield b"\x0f" + field(2, chat) + field(3, field(1, 0) + field(3, 5)) + field(4, 3)
    for method in (b"\x10", b"\x11"):
        yield method + field(1, "llama")
        yield method + field(2, "jobs/held")
    yield b"\x11" + field(3, 1000) + field(4, 30) + field(5, 30)
    yield b"\x12"


def crc32c(data):
    crc = 0xFFFFFFFF
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = crc >> 1 ^ (0x82F63B78 if crc & 1 else 0)
    return crc ^ 0xFFFFFFFF


def listener():
    """Behind an even byte what is no HTTP/2, behind an odd one frames of it (RFC 9113, section 6)."""
    def frame(kind, flags, stream, payload):
        return (len(payload).to_bytes(3, "big") + bytes([kind, flags]) +
                stream.to_bytes(4, "big") + payload)

    for text in ("", "GET / HTTP/1.1\r\nHost: a\r\n\r\n", "PRI * HTTP/2.0\r\n\r\n", "\x16\x03\x01\x02"):
        yield b"\x00" + text.encode()
    # Literal header fields without indexing: RFC 7541, section 6.2.2.
    fields = b"".join(b"\x00" + bytes([len(name)]) + name + bytes([len(value)]) + value
                      for name, value in ((b":method", b"POST"), (b":scheme", b"http"),
                                          (b":path", b"/nightshift.v1.JobService/GetJob"),
                                          (b":authority", b"a"), (b"te", b"trailers"),
                                          (b"content-type", b"application/grpc")))
    message = b"\x00" + (11).to_bytes(4, "big") + field(1, "jobs/done")
    frames = {
        "settings": frame(4, 0, 0, struct.pack(">HI", 4, 65535)),
        "headers": frame(1, 4, 1, fields),
        "data": frame(0, 1, 1, message),
        "long": frame(0, 1, 1, b"\x00\xff\xff\xff\xff" + message),
        "ping": frame(6, 0, 0, bytes(8)),
        "reset": frame(3, 0, 1, bytes(4)),
        "window": frame(8, 0, 0, struct.pack(">I", 1)),
        "away": frame(7, 0, 0, bytes(8)),
        "priority": frame(2, 0, 1, bytes(5)),
        "continuation": frame(9, 4, 1, fields),
    }
    for one in frames.values():
        yield b"\x01" + one
        yield b"\x01" + frames["headers"] + one
    yield b"\x01" + frames["headers"] + frames["data"]


def words(seeds):
    """The commonest words of the seeds, as a dictionary of libFuzzer."""
    counts = collections.Counter()
    for seed in seeds:
        counts.update(set(re.findall(rb"(?:<\|?)?[A-Za-z_][A-Za-z0-9_.|<>-]{1,40}|[{}%|~=<>!#-]{2,3}", seed)))
    lines = [f'"{word.decode()}"' for word, _ in counts.most_common(MAX_WORDS)]
    return "\n".join(lines + ['"\\x1e"', '"\\":\\""', '"18446744073709551615"', '"-1"', '"1e400"']) + "\n"


def main():
    build, output, chosen = pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2]), sys.argv[3:]
    targets = {"safetensors_header": safetensors_header(), "gguf": gguf(),
               "tokenizer_json": tokenizer_json(), "model_config": model_config(),
               "pack_manifest": pack_manifest(build), "hardware_profile": hardware_profile(),
               "chat_template": chat_template(),
               "jsonl_row": jsonl_row(), "page_token": page_token(),
               "csv": csv(), "service_request": service_request(), "listener": listener()}
    for name in chosen or targets:
        made = targets[name]
        seeds = sorted(set(made))
        folder = output / name / "seeds"
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        for i, seed in enumerate(seeds):
            (folder / f"{i:04}").write_bytes(seed)
        (output / name / "words.dict").write_text(words(seeds), encoding="ascii")
        print(f"{name}: {len(seeds)} seeds, {sum(map(len, seeds))} bytes")


if __name__ == "__main__":
    main()
