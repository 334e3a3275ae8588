"""What the offloading benches share: packs of random weights, runs of `nightshift bench`, what the
disk and the cores can do at most, memory cgroups, lines of JSON."""

import contextlib
import dataclasses
import functools
import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.append(str(ROOT / "tests" / "e2e"))
from e2e_lib import BUILD, CACHE, MIB, NIGHTSHIFT, NIGHTSHIFTD, Cgroup  # noqa: E402, F401

KERNELS = BUILD / "tests" / "bench" / "kernels"


@dataclasses.dataclass(frozen=True)
class Shape:
    """A shape of engine/model/known_shapes, for arithmetic."""
    name: str
    width: int
    layers: int
    heads: int
    kv_heads: int
    ffn_width: int
    vocabulary: int
    matmul_case: str  # of tests/bench/kernels: the product that most of the work is like

    @property
    def kv_width(self):
        return self.width // self.heads * self.kv_heads

    @property
    def layer_parameters(self):
        return self.layers * (2 * self.width * self.width + 2 * self.width * self.kv_width +
                              3 * self.width * self.ffn_width)

    @property
    def head_parameters(self):
        return self.vocabulary * self.width

    @property
    def pack_bytes(self):
        return 2 * (self.layer_parameters + 2 * self.head_parameters)

    @property
    def kv_bytes_per_token(self):
        return 2 * 2 * self.layers * self.kv_width

    def flops(self, rows, sampled, keys):
        """Of a sweep of so many rows, of which some are sampled, that see so many keys together."""
        return (2 * self.layer_parameters * rows + 2 * self.head_parameters * sampled +
                4 * self.width * self.layers * keys)


SHAPES = {
    "1b": Shape("1b", 2048, 16, 32, 8, 8192, 49152, "1B 2048x8192"),
    "7b": Shape("7b", 4096, 32, 32, 8, 14336, 49152, "7B 4096x11008"),
}


def emit(bench, case, value, unit, **more):
    """Prints one case as one line of JSON. Values to four digits."""
    def short(number):
        return float(f"{number:.4g}") if isinstance(number, float) else number
    print(json.dumps({"bench": bench, "case": case, "value": short(value), "unit": unit,
                      **{key: short(item) for key, item in more.items()}}), flush=True)


def note(text):
    print(text, file=sys.stderr, flush=True)


def require_room(folder, num_bytes, what):
    free = shutil.disk_usage(folder).free
    if free < num_bytes:
        sys.exit(f"{what} takes {num_bytes / 1e9:.1f} GB in {folder}, which has {free / 1e9:.1f} "
                 "GB free")


@contextlib.contextmanager
def scratch_folder(parent):
    """A folder on a real disk, removed at the end: O_DIRECT is of no use on tmpfs."""
    with tempfile.TemporaryDirectory(prefix="nightshift-bench-", dir=parent) as folder:
        yield pathlib.Path(folder)


def make_pack(shape, folder):
    """A pack of random weights in bf16; its writing has left the page cache."""
    pack = folder / shape.name
    if not pack.exists():
        subprocess.run([NIGHTSHIFT, "import", "--random", shape.name, "--output", pack],
                       check=True, stdout=sys.stderr)
    evict(pack / "weights.extent")
    return pack


def evict(path):
    """Writes the file back and drops it from the page cache; ends the program if some stays."""
    with open(path, "rb") as stream:
        os.fsync(stream.fileno())
        os.posix_fadvise(stream.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
    cached = cached_bytes(path)
    if cached > 0.01 * path.stat().st_size:
        sys.exit(f"{cached / MIB:.0f} MiB of {path} stay in the page cache; does a process map it?")


def cached_bytes(path):
    """Bytes of the file in the page cache (mincore, as util-linux's fincore asks it)."""
    done = subprocess.run(["fincore", "--bytes", "--noheadings", "--output", "RES", path],
                          check=True, stdout=subprocess.PIPE, text=True)
    return int(done.stdout)


def run_bench(pack, *options, prefix=()):
    """`nightshift bench` of a pack: its report. `prefix` comes before the command."""
    done = subprocess.run([*prefix, NIGHTSHIFTD, "bench", pack, "--json", *map(str, options)],
                          check=False, stdout=subprocess.PIPE, text=True)
    if done.returncode != 0:
        sys.exit(f"bench ended with exit code {done.returncode}")
    return json.loads(done.stdout)


def require_fio():
    if shutil.which("fio") is None:
        sys.exit("needs fio: apt-get install fio")


def fio_rate(path):
    """Bytes/s of a pass over the file by 32 direct reads on their way, by io_uring in registered
    buffers, as the engine's own queue: the better of blocks of 1 MiB, which are the engine's, and
    of 4 MiB, whose rate the engine's larger pages may reach."""
    require_fio()
    return max(fio_pass(path, block) for block in ("1M", "4M"))


def fio_pass(path, block):
    done = subprocess.run(
        ["fio", "--name=read", f"--filename={path}", "--readonly", "--rw=read", "--direct=1",
         "--ioengine=io_uring", "--iodepth=32", f"--bs={block}", "--fixedbufs=1",
         "--registerfiles=1", "--output-format=json"], check=True, stdout=subprocess.PIPE,
        text=True)
    return json.loads(done.stdout)["jobs"][0]["read"]["bw_bytes"]


def kernel_rates(case, *options):
    """Rates of a case of tests/bench/kernels in units/s: {"ours": .., "oneDNN": .., ..}."""
    done = subprocess.run([KERNELS, "--case", case, *map(str, options)], check=True,
                          stdout=subprocess.PIPE, text=True)
    rates = {}
    for line in map(json.loads, done.stdout.splitlines()):
        rates["ours " + line["unit"]] = line["value"] * 1e9
        rates[line["reference"]] = line["reference_value"] * 1e9
    if not rates:
        sys.exit(f"kernels has no case {case}")
    return rates


@functools.cache
def matmul_rate(shape, rows, threads):
    """FLOP/s of the best of ours, oneDNN and (f32 only) OpenBLAS for so many rows in bf16, the best
    of three tries: what disturbs one makes it slower, never faster."""
    best = 0.0
    for _ in range(3):
        rates = kernel_rates(f"matmul bf16 M={rows} {shape.matmul_case}", "--rows", rows,
                             "--threads", threads)
        best = max(best, *(rate for name, rate in rates.items()
                           if name in ("ours GFLOP/s", "oneDNN", "OpenBLAS")))
    return best


def memory_rate(threads):
    """Bytes/s that the cores read from memory."""
    return kernel_rates("attention decode bf16 GQA 4", "--threads", threads)["bandwidth"]
