#!/usr/bin/env python3
"""kill -9 of the daemon again and again in a 200-row job: each row once, none lost, same text.

Usage: durability_test.py [--kills N] [--seed N]
"""

import argparse
import collections
import random
import secrets
import subprocess
import sys
import time
import unittest

from e2e_lib import EndToEndTest, read_rows, smollm2_pack, start_client, write_rows

NUM_ROWS = 200
UNAVAILABLE = 8  # the client's exit code
ARGUMENTS = argparse.ArgumentParser()
ARGUMENTS.add_argument("--kills", type=int, default=20)
ARGUMENTS.add_argument("--seed", type=int, default=secrets.randbelow(1 << 32))


def make_rows():
    """Greedy and sampled rows of different lengths, so that they finish at different times; some
    with several choices and with options that look at what was generated."""
    rows = [{"id": f"row-{i}", "prompt": f"{i}. A short note about the number {i}:",
             "max_tokens": 2 + i % 9, "temperature": 0.8 * (i % 2), "seed": i}
            for i in range(NUM_ROWS)]
    for row in rows[3::20]:
        row |= {"n": 2, "repetition_penalty": 1.3, "presence_penalty": 0.4}
    return rows


def text_of(row):
    """What a result says, all its choices."""
    return row["text"] if "text" in row else [choice["text"] for choice in row["choices"]]


class DurabilityTest(EndToEndTest):
    options = None  # of the command line

    def make_daemon(self, name):
        # A small block: rows are published all along the job, not all at its end.
        return self.daemon("--model", smollm2_pack(), "--max-block-requests", "8", name=name)

    def test_each_row_comes_once_whenever_the_daemon_is_killed(self):
        rows = make_rows()
        calm = self.make_daemon("calm").start()
        started = time.monotonic()
        expected = {row["id"]: text_of(row) for row in self.run_job(calm, rows, name="calm")}
        calm_s = time.monotonic() - started
        self.assertEqual(calm.drain(), 0)
        self.assertEqual(len(expected), NUM_ROWS)

        print(f"undisturbed run: {calm_s:.1f} s; seed {self.options.seed}", file=sys.stderr)
        results = self.run_disturbed(rows, calm_s)
        counts = collections.Counter(row["id"] for row in results)
        self.assertEqual([name for name, count in counts.items() if count != 1], [])
        self.assertEqual({row["id"]: text_of(row) for row in results}, expected)

    def run_disturbed(self, rows, calm_s):
        """Kills the daemon `kills` times while the client rides through; returns its file."""
        source = write_rows(self.folder / "stormy.jsonl", rows)
        target = self.folder / "stormy.results.jsonl"
        daemon = self.make_daemon("stormy")
        chance = random.Random(self.options.seed)
        self.client = None
        restarts_of_client = 0

        def client_ended_within(seconds):
            nonlocal restarts_of_client
            if self.client is None:
                self.client = start_client("run", source, "--output", target,
                                           address=daemon.address)
                self.addCleanup(self.client.kill)
            try:
                _, errors = self.client.communicate(timeout=seconds)
            except subprocess.TimeoutExpired:
                return False
            if self.client.returncode == UNAVAILABLE:
                self.client = None
                restarts_of_client += 1
                return False
            self.assertEqual(self.client.returncode, 0, errors + daemon.tail())
            return True

        kills = 0
        ended = False
        for _ in range(self.options.kills):
            daemon.launch()
            if chance.random() < 0.8:
                daemon.wait_ready()
                # On average one undisturbed run over all kills, so that they fall all along it.
                ended = client_ended_within(chance.uniform(0, 2 * calm_s / self.options.kills))
            else:
                ended = client_ended_within(chance.uniform(0, 0.5))  # while it starts
            if ended:
                break
            daemon.kill()
            kills += 1
        if not ended:
            daemon.start()
            while not client_ended_within(300):
                pass
        print(f"{kills} kills, client rerun {restarts_of_client} times", file=sys.stderr)
        self.assertGreaterEqual(kills, self.options.kills * 3 // 4)
        self.assertEqual(daemon.drain(), 0)
        return read_rows(target)


if __name__ == "__main__":
    DurabilityTest.options, rest = ARGUMENTS.parse_known_args()
    unittest.main(argv=sys.argv[:1] + rest, verbosity=2)
