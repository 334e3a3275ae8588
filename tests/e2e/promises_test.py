#!/usr/bin/env python3
"""Kills, failpoints and drains of the daemon under clients that log what they were told: what was
accepted runs once, counts add up, texts are those of an undisturbed run, what was deleted is gone.

The engine is a fake whose output is a pure function of prompt and seed.

Usage: promises_test.py [--kills N] [--drains N] [--rounds N] [--seed N]
"""

import argparse
import collections
import json
import random
import secrets
import signal
import subprocess
import sys
import threading
import unittest

from e2e_lib import (FAKE_NIGHTSHIFTD, EndToEndTest, read_rows, run_client, write_rows)

ARGUMENTS = argparse.ArgumentParser()
ARGUMENTS.add_argument("--kills", type=int, default=20)
ARGUMENTS.add_argument("--drains", type=int, default=5)
ARGUMENTS.add_argument("--rounds", type=int, default=1, help="at each failpoint")
ARGUMENTS.add_argument("--seed", type=int, default=secrets.randbelow(1 << 32))

# kernels/base/failpoint.h; all that a job's life passes.
FAILPOINTS = ["chunk_written", "chunk_synced", "finish_received", "input_synced", "input_renamed",
              "directory_synced", "rows_committed", "job_committed", "reply_given",
              "check_committed", "claim_committed", "model_loaded", "sweep_done", "publish_begun",
              "publish_committed", "subscribers_told", "change_committed", "delete_committed",
              "purge_step", "file_removal", "drain_begun", "drain_given_back"]
# Passed only by uploads that break off.
RARE = {"chunk_synced"}
NUM_ROWS = 40
NOT_FOUND = 6  # exit codes of the client
STOPPED = 5
UNAVAILABLE = 8


def make_rows():
    return [{"id": f"row-{i}", "prompt": f"document {i} " + "x" * (7 * i % 50),
             "max_tokens": 1 + 11 * i % 60, "temperature": 0.7, "seed": i}
            for i in range(NUM_ROWS)]


class Life:
    """One client's way through the API, on a thread: what it was told."""

    def __init__(self, test, daemon, name):
        self.test, self.daemon, self.name = test, daemon, name
        self.log = []
        self.thread = threading.Thread(target=self.live, daemon=True)
        self.thread.start()

    def call(self, *arguments):
        while True:
            done = run_client(*arguments, address=self.daemon.address, limit_s=120)
            self.log.append((arguments, done.returncode, done.stdout[:60], done.stderr))
            if done.returncode != UNAVAILABLE:
                return done
            run_client("health", "--wait", address=self.daemon.address)

    def live(self):
        source = self.test.source
        self.target = self.test.folder / f"{self.name}.results.jsonl"
        self.ran = self.call("run", source, "-o", self.target, "--run-key", self.name)
        stopped = self.call("submit", source, "--run-key", f"{self.name} stopped",
                            "--not-before", "2099-01-01T00:00:00Z").stdout.strip()
        self.changed = [self.call(verb, stopped) for verb in ("pause", "resume", "cancel")]
        self.waited = self.call("wait", stopped)
        self.fetched = self.call("results", stopped)
        gone = self.call("submit", source, "--run-key", f"{self.name} gone").stdout.strip()
        self.deleted = self.call("delete", gone, "--force", "--allow-missing")
        self.gone = gone


class PromisesTest(EndToEndTest):
    options = None  # of the command line

    def setUp(self):
        super().setUp()
        print(f"seed {self.options.seed}", file=sys.stderr)
        self.chance = random.Random(self.options.seed)
        self.source = write_rows(self.folder / "in.jsonl", make_rows())
        self.server = self.daemon("--max-block-requests", "8", "--disk-reserve", "0",
                                  executable=FAKE_NIGHTSHIFTD)
        self.server.start()
        calm = self.folder / "calm.jsonl"
        done = run_client("run", self.source, "-o", calm, address=self.server.address)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.expected = {row["id"]: row["text"] for row in read_rows(calm)}
        self.assertEqual(self.server.drain(), 0)

    def launch(self, failpoint=""):
        self.server.launch({"NIGHTSHIFT_FAILPOINT": failpoint} if failpoint else {})

    def died_within(self, seconds):
        try:
            self.server._process.wait(timeout=seconds)
        except subprocess.TimeoutExpired:
            return False
        return True

    def check(self, life):
        life.thread.join(timeout=120)
        self.assertFalse(life.thread.is_alive(), self.server.tail())
        said = json.dumps([str(entry) for entry in life.log], indent=1)
        self.assertEqual(life.ran.returncode, 0, said)
        rows = read_rows(life.target)
        counts = collections.Counter(row["id"] for row in rows)
        self.assertEqual(set(counts.values()), {1}, said)
        self.assertEqual({row["id"]: row["text"] for row in rows}, self.expected)
        # A cancelled job has a line for every row all the same.
        self.assertEqual([done.returncode for done in life.changed], [0, 0, 0], said)
        self.assertEqual(life.waited.returncode, STOPPED, said)
        lines = [json.loads(line) for line in life.fetched.stdout.splitlines()]
        self.assertEqual(sorted(row["id"] for row in lines), sorted(self.expected), said)
        self.assertEqual([row for row in lines if "text" in row], [], said)
        self.assertEqual(life.deleted.returncode, 0, said)
        status = run_client("status", life.gone, address=self.server.address)
        self.assertEqual(status.returncode, NOT_FOUND, status.stderr)

    def check_counts(self):
        listed = run_client("list", "--json", "--limit", "1000", address=self.server.address)
        for line in listed.stdout.splitlines():
            counts = json.loads(line)["counts"]
            total = counts.pop("total")
            self.assertEqual(sum(counts.values()), total, line)
            self.assertEqual(total, NUM_ROWS)

    def test_each_failpoint(self):
        hits = collections.Counter()
        for turn in range(self.options.rounds):
            for name in FAILPOINTS:
                at = f"{name}:{self.chance.randint(1, 2) if turn else 1}"
                self.launch(at)
                try:
                    self.server.wait_ready()
                except AssertionError:  # some places are passed before it is ready
                    self.assertEqual(self.server._process.poll(), -signal.SIGKILL)
                life = Life(self, self.server, f"{name} {turn}")
                if name.startswith("drain"):
                    life.thread.join(timeout=60)
                    self.server._process.terminate()
                died = self.died_within(5 if name not in RARE else 0.2)
                if died:
                    hits[name] += 1
                    self.server._notify.close()
                else:
                    self.server.kill()
                self.launch()
                self.server.wait_ready()
                self.check(life)
                self.check_counts()
                self.assertEqual(self.server.drain(), 0)
        print(f"hits {dict(hits)}", file=sys.stderr)
        self.assertEqual(set(FAILPOINTS) - RARE - set(hits), set())

    def test_random_kills_and_drains(self):
        endings = ["kill"] * self.options.kills + ["drain"] * self.options.drains
        self.chance.shuffle(endings)
        self.launch()
        self.server.wait_ready()
        life = None
        for number, ending in enumerate(endings):
            if life is None or not life.thread.is_alive():
                if life is not None:
                    self.check(life)
                life = Life(self, self.server, f"life {number}")
            self.died_within(self.chance.uniform(0, 0.4))
            if ending == "kill":
                self.server.kill()
            else:
                self.assertEqual(self.server.drain(), 0, self.server.tail())
            self.launch()
            self.server.wait_ready()
        self.check(life)
        self.check_counts()
        self.assertEqual(self.server.drain(), 0)


if __name__ == "__main__":
    PromisesTest.options, rest = ARGUMENTS.parse_known_args()
    unittest.main(argv=sys.argv[:1] + rest, verbosity=2)
