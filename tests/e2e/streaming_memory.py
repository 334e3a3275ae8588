#!/usr/bin/env python3
"""A model of 2.2 GiB (1.17 B random weights) in a memory cgroup of 1 GiB: a job of 64 requests ends.

Usage: streaming_memory.py [--requests N]. A part of `tests/run --long`, as root: it makes a cgroup
(v1 or v2) and writes 2.4 GB of scratch. Prints one JSON line: tokens/s, and the rate at which weights
came from the disk beside a plain direct read of the same file.
"""

import argparse
import json
import os
import pathlib
import random
import subprocess
import sys
import tempfile
import time

from e2e_lib import MIB, NIGHTSHIFT, Cgroup, Daemon, read_rows, run_client, write_rows

CAP_MIB = 1024
SHAPE, VOCABULARY = "1b", 49152
PROMPT_TOKENS, NEW_TOKENS = 128, 32


def read_rate(path):
    """MiB/s of one pass over the file with O_DIRECT, 16 MiB at a time by dd."""
    start = time.monotonic()
    subprocess.run(["dd", f"if={path}", "of=/dev/null", "bs=16M", "iflag=direct", "status=none"],
                   check=True)
    return path.stat().st_size / MIB / (time.monotonic() - start)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--requests", type=int, default=64)
    options = parser.parse_args()
    if os.geteuid() != 0:
        sys.exit("streaming_memory: needs root to make a memory cgroup")
    group = Cgroup(f"nightshift-{os.getpid()}", CAP_MIB * MIB)
    with tempfile.TemporaryDirectory(prefix="nightshift-streaming-", dir="/var/tmp") as scratch:
        scratch = pathlib.Path(scratch)
        subprocess.run([NIGHTSHIFT, "import", "--random", SHAPE, "--output", scratch / "pack"],
                       check=True)
        run_job(scratch, group, options.requests)
    group.remove()


def run_job(scratch, group, num_requests):
    generator = random.Random(1)
    rows = write_rows(scratch / "rows.jsonl", [
        {"id": str(i), "prompt": [generator.randrange(VOCABULARY) for _ in range(PROMPT_TOKENS)],
         "max_tokens": NEW_TOKENS, "ignore_eos": True} for i in range(num_requests)])
    disk = read_rate(scratch / "pack" / "weights.extent")
    daemon = Daemon(scratch, "--model", scratch / "pack", "--memory-budget", f"{CAP_MIB - 160}MiB",
                    "--max-block-requests", str(num_requests), prefix=group.enter())
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
        "case": f"shape {SHAPE} in bf16 under {CAP_MIB} MiB, {num_requests} requests, "
                f"{PROMPT_TOKENS}+{NEW_TOKENS}",
        "value": round(generated / seconds, 2), "unit": "generated tokens/s",
        "seconds": round(seconds, 1), "peak_mib": round(group.peak_mib()),
        "direct_read_mib_per_s": round(disk)}), flush=True)
    if done.returncode != 0 or len(results) != num_requests:
        sys.exit(f"the job did not end well: {done.stderr}\n{daemon.tail()}")
    if "from disk" not in info:
        sys.exit("the weights were not streamed")


if __name__ == "__main__":
    main()
