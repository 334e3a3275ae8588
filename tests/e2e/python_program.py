#!/usr/bin/env python3
"""A program as a user of the Python client writes it: requests in, a file of lines out, killed at will.

Usage: python_program.py ADDRESS INPUT OUTPUT RUN_KEY
"""

import json
import pathlib
import sys

import nightshift


def last_seq_of(path):
    """Cuts a torn line off; returns the seq of the last whole one."""
    if not path.exists():
        return 0
    data = path.read_bytes()
    whole = data[:data.rfind(b"\n") + 1]
    path.write_bytes(whole)
    return json.loads(whole.splitlines()[-1])["seq"] if whole else 0


def main(address, source, target, run_key):
    output = pathlib.Path(target)
    with nightshift.Client(address) as client:
        job = client.submit(source, run_key=run_key)
        after = last_seq_of(output)
        with open(output, "a", encoding="utf-8", buffering=1) as lines:
            for result in client.results(job.name, after_seq=after):
                line = {"seq": result.seq, "id": result.custom_id,
                        "text": result.completion.text.decode()}
                lines.write(json.dumps(line) + "\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
