#!/usr/bin/env python3
"""Kills, failpoints and drains of the daemon under clients that log what they were told: what was
accepted runs once, counts add up, texts are those of an undisturbed run, what was deleted is gone,
jobs that are changed meanwhile have a line for each row. The engine process is killed too: then the
daemon lives.

Usage: promises_test.py [--kills N] [--drains N] [--engine-kills N] [--rounds N] [--seed N]
"""

import argparse
import collections
import contextlib
import itertools
import json
import os
import pathlib
import random
import re
import secrets
import select
import shutil
import signal
import sqlite3
import sys
import unittest

from client_life import Changes, Life, LifeTest, make_rows
from e2e_lib import LIMIT_S, ROOT, read_if_there, read_rows, start_client, write_rows

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
# Passed once by a daemon in such a life.
ONCE = {"chunk_synced", "model_loaded", "delete_committed", "file_removal", "drain_begun",
        "drain_given_back"}
# kSyncBytes of server/rpc/submit_stream_call.cc: an upload of more is synced on its way.
UPLOAD_BYTES = 33 << 20
# kVersions of server/store/sqlite_schema.cc.
SCHEMA_VERSION = 7
MANY_DAYS = 30000  # the jobs of old databases ended in 1970
MANY_COPIES = 40
MOST_AT_A_TIME = 3  # clients of a kind; after a kill some take a second to connect again
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

    def launch(self, failpoint="", server=None):
        (server or self.server).launch({"NIGHTSHIFT_FAILPOINT": failpoint} if failpoint else {})

    def make_long_source(self):
        """The same rows with white space behind some."""
        rows = [json.dumps(row).encode() for row in make_rows(self.num_rows)]
        for i in range(4):
            rows[i] += b" " * (UPLOAD_BYTES // 4)
        return write_rows(self.folder / "long.jsonl", rows)

    def test_each_failpoint(self):
        hits = collections.Counter()
        long_source = self.make_long_source()
        for turn in range(self.options.rounds):
            for name in FAILPOINTS:
                at = f"{name}:{self.chance.randint(1, 2) if turn and name not in ONCE else 1}"
                self.launch(at)
                try:
                    self.server.wait_ready()
                except AssertionError:  # some places are passed before it is ready
                    self.assertEqual(self.server._process.poll(), -signal.SIGKILL)
                life = Life(self, self.server, f"{name} {turn}",
                            long_source if name == "chunk_synced" else None)
                if name.startswith("drain"):
                    life.thread.join(timeout=60)
                    self.server.terminate()
                if self.died_during(life):
                    hits[name] += 1
                    self.assertEqual(self.server.wait(), -signal.SIGKILL, self.server.tail())
                else:
                    self.server.kill()
                self.launch()
                self.server.wait_ready()
                self.check(life)
                self.check_counts()
                self.assertEqual(self.server.drain(), 0)
        print(f"hits {dict(hits)}", file=sys.stderr)
        self.assertEqual(hits, {name: self.options.rounds for name in FAILPOINTS})

    def died_during(self, life):
        while life.thread.is_alive():
            if self.server.died_within(0.05):
                return True
        return self.server.died_within(5)

    def test_a_log_whose_checkpoint_is_killed(self):
        source = write_rows(self.folder / "many.jsonl",
                            [row | {"id": f"{row['id']} {copy}"} for copy in range(MANY_COPIES)
                             for row in make_rows(self.num_rows)])
        for turn in range(self.options.rounds):
            target = self.folder / f"many {turn}.jsonl"
            self.launch("checkpoint_begun")
            self.server.wait_ready()
            client = start_client("run", source, "-o", target, "--run-key", f"many {turn}",
                                  address=self.server.address)
            self.addCleanup(client.communicate)
            self.addCleanup(client.kill)
            self.assertEqual(self.server.wait(), -signal.SIGKILL, self.server.tail())
            self.launch("checkpoint_ended")
            self.assertEqual(self.server.wait(), -signal.SIGKILL, self.server.tail())
            self.launch()
            self.assertEqual(client.wait(timeout=LIMIT_S), 0, self.server.tail())
            rows = read_rows(target)
            self.assertEqual(len(rows), MANY_COPIES * self.num_rows)
            self.assertEqual({row["id"]: row["text"] for row in rows},
                             {f"{name} {copy}": text for copy in range(MANY_COPIES)
                              for name, text in self.expected.items()})
            self.assertEqual(self.server.drain(), 0)

    def test_a_migration_that_is_killed_goes_on_at_the_next_start(self):
        for turn, version in itertools.product(range(self.options.rounds), range(1, SCHEMA_VERSION)):
            server = self.make_server(
                "--model", self.server.folder / "state" / "fake", "--keep-results", MANY_DAYS,
                "--keep-records", MANY_DAYS, name=f"version-{version}-{turn}")
            database = server.folder / "state" / "store.sqlite"
            database.parent.mkdir()
            shutil.copy(ROOT / "tests" / "data" / "store" / f"version-{version}.sqlite", database)
            before = self.look_into(database)
            self.assertEqual(before[0], version)
            for _ in range(version, SCHEMA_VERSION):
                self.launch("migration_step", server)
                self.assertEqual(server.wait(), -signal.SIGKILL, server.tail())
            self.launch("migration_step", server)
            server.wait_ready()
            self.assertEqual(server.drain(), 0)
            self.assertEqual(self.look_into(database), (SCHEMA_VERSION, before[1]))

    def look_into(self, path):
        """Of a database that nobody has open: its version, its jobs and how many rows they have."""
        with contextlib.closing(sqlite3.connect(path)) as database:
            version = database.execute("PRAGMA user_version").fetchone()[0]
            jobs = database.execute("SELECT id, total, count(*) FROM jobs JOIN rows ON job = number"
                                    " GROUP BY number ORDER BY id").fetchall()
        return version, jobs

    def test_random_kills_and_drains(self):
        """Half of the kills come at a time, the others at a named place in turn, if it is reached."""
        named = [name for name in FAILPOINTS
                 if name != "chunk_synced" and not name.startswith("drain")]
        endings = [("kill", named[i // 2 % len(named)] if i % 2 else "")
                   for i in range(self.options.kills)] + [("drain", "")] * self.options.drains
        self.chance.shuffle(endings)
        hits = collections.Counter()
        lives, changed = [], []
        for number, (ending, place) in enumerate(endings):
            count = 1 if place in ONCE else self.chance.randint(1, 4)
            self.launch(f"{place}:{count}" if place else "")
            if sum(life.thread.is_alive() for life in lives) < MOST_AT_A_TIME:
                lives.append(Life(self, self.server, f"life {number}"))
            if sum(life.thread.is_alive() for life in changed) < MOST_AT_A_TIME:
                changed.append(Changes(self, self.server, f"changes {number}", self.chance))
            if ending == "drain" or place or self.chance.random() < 0.8:  # else while it starts
                with contextlib.suppress(AssertionError):  # some places are passed before
                    self.server.wait_ready()
            if ending == "drain":
                self.server.died_within(self.chance.uniform(0, 0.4))
                self.assertEqual(self.server.drain(), 0, self.server.tail())
            elif self.server.died_within(2 if place else self.chance.uniform(0, 0.6)):
                self.assertEqual(self.server.wait(), -signal.SIGKILL, self.server.tail())
                hits[place] += 1
            else:
                self.server.kill()
                hits["at some time"] += 1
        self.launch()
        self.server.wait_ready()
        for life in lives:
            self.check(life)
        ends = collections.Counter(self.check_changes(life) for life in changed)
        self.check_counts()
        self.assertEqual(self.server.drain(), 0)
        print(f"{len(lives)} lives, hits {dict(hits)}, changed jobs {dict(ends)}", file=sys.stderr)
        self.assertEqual(sum(hits.values()), self.options.kills)

    def test_random_kills_of_the_engine(self):
        self.launch()
        self.server.wait_ready()
        lives, engine_kills, kills = [Life(self, self.server, "life 0")], 0, 0
        while kills < self.options.engine_kills:
            # The last attempt of a row is left to it.
            if engine_kills == MAX_ATTEMPTS - 1 or not lives[-1].thread.is_alive():
                self.check(lives[-1])
                lives.append(Life(self, self.server, f"life {len(lives)}"))
                engine_kills = 0
            self.server.died_within(self.chance.uniform(0, 0.4))
            killed = self.server.kill_engine()
            engine_kills += killed
            kills += killed
        self.check(lives[-1])
        self.check_counts()
        self.assertEqual(self.server.drain(), 0)
        print(f"engine processes killed {kills} in {len(lives)} lives", file=sys.stderr)

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
