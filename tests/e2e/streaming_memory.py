#!/usr/bin/env python3
"""Models larger than the memory they may use: a job on random weights ends in a memory cgroup.

Usage: streaming_memory.py [CASE...], of
  1b   2.2 GiB of weights under 1 GiB, 64 requests of 128 + 32 tokens
  7b   13.8 GiB under 3 GiB, 256 requests of 16 + 4 tokens: the prompts' sweeps and three more, of a
       block for which disk and compute take about as long
  13b  24 GiB under 4 GiB, the same; not among the cases without argument

A part of `tests/run --long`, as root: it makes a cgroup (v1 or v2) and writes scratch of the model's
size, one model at a time. Prints one JSON line a case: generated tokens/s, the peak of the cgroup, and
a plain direct read of the same file.
"""

import argparse
import json
import os
import pathlib
import random
import shutil
import subprocess
import sys
import tempfile
import time
import typing

from e2e_lib import MIB, NIGHTSHIFT, Cgroup, Daemon, read_rows, run_client, write_rows

SCRATCH = "/var/tmp"


class Case(typing.NamedTuple):
    shape: str
    vocabulary: int
    pack_mib: int
    cap_mib: int
    requests: int
    prompt_tokens: int
    new_tokens: int


CASES = {
    "1b": Case("1b", 49152, 2400, 1024, 64, 128, 32),
    "7b": Case("7b", 32000, 14300, 3072, 256, 16, 4),
    "13b": Case("opt-13b", 50272, 25200, 4096, 256, 16, 4),
}


def read_rate(path):
    """MiB/s of one pass over the file with O_DIRECT, 16 MiB at a time by dd."""
    start = time.monotonic()
    subprocess.run(["dd", f"if={path}", "of=/dev/null", "bs=16M", "iflag=direct", "status=none"],
                   check=True)
    return path.stat().st_size / MIB / (time.monotonic() - start)


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("cases", nargs="*", metavar="CASE", choices=[*CASES, []],
                        default=["1b", "7b"])
    options = parser.parse_args()
    if os.geteuid() != 0:
        sys.exit("streaming_memory: needs root to make a memory cgroup")
    for name in options.cases:
        run_case(CASES[name])


def run_case(case):
    free_mib = shutil.disk_usage(SCRATCH).free / MIB
    if free_mib < 1.1 * case.pack_mib:
        sys.exit(f"streaming_memory: shape {case.shape} takes {case.pack_mib} MiB in {SCRATCH}, "
                 f"which has {free_mib:.0f} MiB free")
    group = Cgroup(f"nightshift-{os.getpid()}", case.cap_mib * MIB)
    with tempfile.TemporaryDirectory(prefix="nightshift-streaming-", dir=SCRATCH) as scratch:
        scratch = pathlib.Path(scratch)
        subprocess.run([NIGHTSHIFT, "import", "--random", case.shape, "--output", scratch / "pack"],
                       check=True)
        run_job(scratch, group, case)
    group.remove()


def run_job(scratch, group, case):
    generator = random.Random(1)
    rows = write_rows(scratch / "rows.jsonl", [
        {"id": str(i), "prompt": [generator.randrange(case.vocabulary)
                                   for _ in range(case.prompt_tokens)],
         "max_tokens": case.new_tokens, "ignore_eos": True} for i in range(case.requests)])
    disk = read_rate(scratch / "pack" / "weights.extent")
    daemon = Daemon(scratch, "--model", scratch / "pack", "--memory-budget", f"{case.cap_mib - 160}MiB",
                    "--max-block-requests", str(case.requests), prefix=group.enter())
    daemon.start()
    start = time.monotonic()
    done = run_client("run", rows, "-o", scratch / "out.jsonl", address=daemon.address,
                      limit_s=7200)
    seconds = time.monotonic() - start
    info = run_client("server", "info", address=daemon.address).stdout
    daemon.drain()
    results = read_rows(scratch / "out.jsonl") if done.returncode == 0 else []
    generated = sum(row["usage"]["completion_tokens"] for row in results)
    print(next((line for line in info.splitlines() if "from disk" in line), "not streamed"))
    print(json.dumps({
        "bench": "streaming_memory",
        "case": f"shape {case.shape} in bf16 under {case.cap_mib} MiB, {case.requests} requests, "
                f"{case.prompt_tokens}+{case.new_tokens}",
        "value": round(generated / seconds, 2), "unit": "generated tokens/s",
        "seconds": round(seconds, 1), "peak_mib": round(group.peak_mib()),
        "direct_read_mib_per_s": round(disk)}), flush=True)
    if done.returncode != 0 or len(results) != case.requests:
        sys.exit(f"the job did not end well: {done.stderr}\n{daemon.tail()}")
    if "from disk" not in info:
        sys.exit("the weights were not streamed")


if __name__ == "__main__":
    main()
