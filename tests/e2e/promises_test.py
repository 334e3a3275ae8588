#!/usr/bin/env python3
"""Kills, failpoints and drains of the daemon under clients that log what they were told: what was
accepted runs once, counts add up, texts are those of an undisturbed run, what was deleted is gone.
The engine process is killed too: then the daemon lives.

Usage: promises_test.py [--kills N] [--drains N] [--engine-kills N] [--rounds N] [--seed N]
"""

import argparse
import collections
import os
import pathlib
import random
import re
import secrets
import select
import signal
import sys
import unittest

from client_life import Life, LifeTest
from e2e_lib import read_if_there, read_rows

ARGUMENTS = argparse.ArgumentParser()
ARGUMENTS.add_argument("--kills", type=int, default=20)
ARGUMENTS.add_argument("--drains", type=int, default=5)
ARGUMENTS.add_argument("--engine-kills", type=int, default=10)
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
MAX_ATTEMPTS = 3  # of a row, when the job says nothing
CRASH_TOKEN = 8   # tests/support/fake_engine.h: a prompt that begins with it ends the engine
FINISHED_WITH_FAILED_REQUESTS = 3


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

    def test_random_kills_of_the_engine(self):
        self.launch()
        self.server.wait_ready()
        life, engine_kills, hits = Life(self, self.server, "life 0"), 0, 0
        for number in range(1, self.options.engine_kills + 1):
            # The last attempt of a row is left to it.
            if engine_kills == MAX_ATTEMPTS - 1 or not life.thread.is_alive():
                self.check(life)
                life, engine_kills = Life(self, self.server, f"life {number}"), 0
            self.server.died_within(self.chance.uniform(0, 0.4))
            killed = self.server.kill_engine()
            engine_kills += killed
            hits += killed
        self.check(life)
        self.check_counts()
        self.assertEqual(self.server.drain(), 0)
        print(f"engine processes killed {hits}", file=sys.stderr)
        self.assertGreater(hits, 0)

    def test_a_request_that_ends_the_engine_fails_alone(self):
        self.launch()
        self.server.wait_ready()
        rows = [*read_rows(self.source), {"id": "crash", "prompt": [CRASH_TOKEN, 20], "max_tokens": 4}]
        results = {row["id"]: row for row in
                   self.run_job(self.server, rows, exit_code=FINISHED_WITH_FAILED_REQUESTS)}
        error = results.pop("crash")["error"]["message"]
        self.assertRegex(error, "engine process [0-9]+ was ended by signal 9")
        self.assertEqual({name: row["text"] for name, row in results.items()}, self.expected)
        self.assertEqual(self.server.drain(), 0)

    def run_anew(self, name):
        """The rows as a job of their own: the same file alone would attach to the job of setUp."""
        results = self.run_job(self.server, read_rows(self.source), "--run-key", name, name=name)
        self.assertEqual({row["id"]: row["text"] for row in results}, self.expected)

    def test_an_engine_that_is_killed_while_it_is_idle_is_started_again(self):
        self.launch()
        self.server.wait_ready()
        for name in ("before", "after"):
            self.run_anew(name)
            self.assertTrue(self.server.kill_engine())
        self.assertEqual(self.server.drain(), 0)

    def test_the_engine_has_no_descriptor_of_the_daemon_and_ends_with_it(self):
        self.launch()
        self.server.wait_ready()
        self.run_anew("job")
        daemon = pathlib.Path(f"/proc/{self.server._process.pid}")
        for info in (daemon / "fdinfo").iterdir():
            text = read_if_there(info)
            if int(info.name) > 2 and text:
                flags = re.search(r"^flags:\s*([0-7]+)$", text, re.MULTILINE).group(1)
                self.assertTrue(int(flags, 8) & os.O_CLOEXEC,
                                f"not close-on-exec: {os.readlink(daemon / 'fd' / info.name)}")
        fds = pathlib.Path(f"/proc/{self.server.engine_pid()}/fd")
        names = {int(fd.name): os.readlink(fd) for fd in fds.iterdir()}
        self.assertEqual(sorted(names), [0, 1, 2, 3], names)
        self.assertTrue(names[3].startswith("socket:"), names)
        engine = os.pidfd_open(self.server.engine_pid())
        self.addCleanup(os.close, engine)
        self.server.kill()
        ended, _, _ = select.select([engine], [], [], 60)
        self.assertEqual(ended, [engine])


if __name__ == "__main__":
    PromisesTest.options, rest = ARGUMENTS.parse_known_args()
    unittest.main(argv=sys.argv[:1] + rest, verbosity=2)
