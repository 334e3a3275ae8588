#!/usr/bin/env python3
"""Many clients at one time: idle ones, ones that wait for a job, readers that have stopped. The
daemon's memory stays bounded, its log too while it goes on writing, and everybody is answered.

Usage: load_test.py [--idle N] [--waits N] [--stalled N] [--seconds N]
"""

import argparse
import resource
import sys
import time
import unittest

from e2e_lib import FAKE_NIGHTSHIFTD, MIB, EndToEndTest, run_client, write_rows
from raw_grpc import Crowd, text_field

ARGUMENTS = argparse.ArgumentParser()
ARGUMENTS.add_argument("--idle", type=int, default=1000)
ARGUMENTS.add_argument("--waits", type=int, default=200)
ARGUMENTS.add_argument("--stalled", type=int, default=20)
ARGUMENTS.add_argument("--seconds", type=int, default=3, help="for which the readers stand still")

STREAMS_PER_CONNECTION = 100  # the daemon takes 128
MAX_MEMORY = 500 * MIB
MAX_GROWTH = 32 * MIB  # beside readers that have stopped, but for their windows
MAX_LOG = 64 * MIB
RESULTS = 5000


class LoadTest(EndToEndTest):
    options = None  # of the command line

    def setUp(self):
        super().setUp()
        wanted = self.options.idle + self.options.waits + self.options.stalled + 200
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        if soft < wanted:
            resource.setrlimit(resource.RLIMIT_NOFILE, (min(wanted, hard), hard))
        self.server = self.daemon("--disk-reserve", "0", executable=FAKE_NIGHTSHIFTD).start()
        self.crowd = Crowd(self.server.address.removeprefix("unix:"))
        self.addCleanup(self.crowd.close)

    def submit(self, name, rows, *options):
        source = write_rows(self.folder / f"{name}.jsonl", rows)
        done = run_client("submit", source, "--job-id", name, "--run-key", name, *options,
                          address=self.server.address)
        self.assertEqual(done.returncode, 0, done.stderr)

    def rows(self, count):
        return ({"id": str(i), "prompt": f"document {i} " + "x" * 100, "max_tokens": 40}
                for i in range(count))

    def test_idle_clients_and_waits_take_bounded_memory_and_all_waits_end(self):
        self.submit("late", self.rows(10), "--not-before", "2099-01-01T00:00:00Z")
        self.crowd.add(self.options.idle)
        waiting = self.crowd.add(-(-self.options.waits // STREAMS_PER_CONNECTION))
        # Until the server has greeted everybody.
        self.assertTrue(self.crowd.serve(
            lambda: all(connection.greeted for connection in self.crowd.connections), 120))
        left = self.options.waits
        for connection in waiting:
            for _ in range(min(left, STREAMS_PER_CONNECTION)):
                connection.call("WaitJob", text_field(1, "jobs/late"))
                left -= 1
        # A call of a client that came last is answered while all others are there.
        self.assertEqual(run_client("status", "late", address=self.server.address).returncode, 0)
        memory = self.server.memory_bytes("VmRSS")
        print(f"{self.options.idle} idle clients, {self.options.waits} waits: "
              f"{memory / MIB:.0f} MiB", file=sys.stderr)
        self.assertLess(memory, MAX_MEMORY)
        self.assertEqual(sum(len(c.ended) for c in waiting), 0)
        self.assertEqual(run_client("cancel", "late", address=self.server.address).returncode, 0)
        self.assertTrue(self.crowd.serve(
            lambda: sum(len(c.answered) for c in waiting) == self.options.waits, 60))
        self.assertEqual(sum(c.is_open for c in self.crowd.connections),
                         len(self.crowd.connections))

    def test_readers_that_stop_cost_nothing_more_and_the_log_stays_bounded(self):
        self.submit("read", self.rows(RESULTS))
        run_client("wait", "read", address=self.server.address)
        readers = self.crowd.add(self.options.stalled)
        for connection in readers:
            connection.call("StreamResults", text_field(1, "jobs/read"))
        self.assertTrue(self.crowd.serve(lambda: all(c.answered for c in readers), 60))
        before = self.server.memory_bytes("VmRSS")
        log = self.server.folder / "state" / "store.sqlite-wal"
        jobs, largest, growth = 0, 0, 0
        end = time.monotonic() + self.options.seconds
        while time.monotonic() < end:
            # Beside them the daemon writes: jobs come and go.
            self.submit(f"beside-{jobs}", self.rows(500))
            run_client("wait", f"beside-{jobs}", address=self.server.address)
            self.crowd.serve(lambda: False, 0.05)
            jobs += 1
            largest = max(largest, log.stat().st_size)
            growth = max(growth, self.server.memory_bytes("VmRSS") - before)
        print(f"{len(readers)} stopped readers, {jobs} jobs beside them: grew by "
              f"{growth / MIB:.1f} MiB, log {largest / MIB:.1f} MiB", file=sys.stderr)
        self.assertEqual(sum(len(c.ended) for c in readers), 0, "none has read to the end")
        self.assertLess(growth, MAX_GROWTH)
        self.assertLess(largest, MAX_LOG)


if __name__ == "__main__":
    LoadTest.options, rest = ARGUMENTS.parse_known_args()
    unittest.main(argv=sys.argv[:1] + rest, verbosity=2)
