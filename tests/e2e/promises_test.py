#!/usr/bin/env python3
"""Kills, failpoints and drains of the daemon under clients that log what they were told: what was
accepted runs once, counts add up, texts are those of an undisturbed run, what was deleted is gone.

Usage: promises_test.py [--kills N] [--drains N] [--rounds N] [--seed N]
"""

import argparse
import collections
import random
import secrets
import signal
import sys
import unittest

from client_life import Life, LifeTest

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


class PromisesTest(LifeTest):
    options = None  # of the command line

    def setUp(self):
        super().setUp()
        print(f"seed {self.options.seed}", file=sys.stderr)
        self.chance = random.Random(self.options.seed)
        self.start_calm()

    def launch(self, failpoint=""):
        self.server.launch({"NIGHTSHIFT_FAILPOINT": failpoint} if failpoint else {})

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
                    self.server.terminate()
                died = self.server.died_within(5 if name not in RARE else 0.2)
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
        """Half of the kills come at a time, the others at a named place in turn, if it is reached."""
        named = [name for name in FAILPOINTS if name not in RARE and not name.startswith("drain")]
        endings = [("kill", named[i // 2 % len(named)] if i % 2 else "")
                   for i in range(self.options.kills)] + [("drain", "")] * self.options.drains
        self.chance.shuffle(endings)
        hits = collections.Counter()
        lives = []
        for number, (ending, place) in enumerate(endings):
            self.launch(f"{place}:{self.chance.randint(1, 8)}" if place else "")
            if not lives or not lives[-1].thread.is_alive():
                lives.append(Life(self, self.server, f"life {number}"))
            if ending == "drain":
                self.server.wait_ready()
                self.server.died_within(self.chance.uniform(0, 0.4))
                self.assertEqual(self.server.drain(), 0, self.server.tail())
            elif self.server.died_within(1 if place else self.chance.uniform(0, 0.6)):
                self.assertEqual(self.server.wait(), -signal.SIGKILL, self.server.tail())
                hits[place] += 1
            else:
                self.server.kill()
                hits["at some time"] += 1
        self.launch()
        self.server.wait_ready()
        for life in lives:
            self.check(life)
        self.check_counts()
        self.assertEqual(self.server.drain(), 0)
        print(f"{len(lives)} lives, hits {dict(hits)}", file=sys.stderr)
        self.assertEqual(sum(hits.values()), self.options.kills)


if __name__ == "__main__":
    PromisesTest.options, rest = ARGUMENTS.parse_known_args()
    unittest.main(argv=sys.argv[:1] + rest, verbosity=2)
