#!/usr/bin/env python3
"""The wall clock is set forward and back under the daemon: it moves the times of jobs and nothing else.

Usage: clock_test.py [--jumps N] [--seed N]
"""

import argparse
import datetime
import random
import secrets
import struct
import sys
import unittest

from client_life import STOPPED, LifeTest, ShortLife
from e2e_lib import BUILD, run_client

ARGUMENTS = argparse.ArgumentParser()
ARGUMENTS.add_argument("--jumps", type=int, default=3)
ARGUMENTS.add_argument("--seed", type=int, default=secrets.randbelow(1 << 32))

CLOCK_JUMP = BUILD / "tests" / "support" / "libclock_jump.so"
HOUR_S = 3600
DAY_S = 24 * HOUR_S


def clock(seconds_ahead):
    """A time of day or a date, so far from now, as options want it."""
    return (datetime.datetime.now(datetime.timezone.utc) +
            datetime.timedelta(seconds=seconds_ahead))


class ClockTest(LifeTest):
    options = None  # of the command line
    num_rows = 12

    def setUp(self):
        super().setUp()
        self.start_calm()
        self.ahead = self.folder / "ahead"
        self.jump(0)
        self.launch()

    def launch(self):
        self.server.launch({"LD_PRELOAD": str(CLOCK_JUMP), "CLOCK_JUMP": str(self.ahead)})
        self.server.wait_ready()

    def jump(self, seconds_ahead):
        if not self.ahead.exists():
            self.ahead.write_bytes(bytes(8))
        with open(self.ahead, "r+b") as stream:  # in place: the daemon has it mapped
            stream.write(struct.pack("q", seconds_ahead))

    def client(self, *arguments):
        return run_client(*arguments, address=self.server.address, limit_s=120)

    def submit(self, name, *options):
        done = self.client("submit", self.source, "--run-key", name, *options)
        self.assertEqual(done.returncode, 0, done.stderr)
        return done.stdout.strip()

    def run_one(self, name):
        """A job that may run at once; whatever waits for a time is looked at meanwhile."""
        done = self.client("submit", self.source, "--run-key", name, "--wait")
        self.assertEqual(done.returncode, 0, done.stderr + self.server.tail())

    def assert_waits(self, job):
        done = self.client("status", job, "--json")
        self.assertRegex(done.stdout, '"state":"(validating|queued)"')

    def test_jobs_follow_the_wall_clock(self):
        window = f"{clock(2 * HOUR_S):%H:%M}-{clock(4 * HOUR_S):%H:%M} UTC"
        timed = [self.submit("later", "--not-before", f"{clock(2 * HOUR_S):%Y-%m-%dT%H:%M:%SZ}"),
                 self.submit("nightly", "--run-window", window)]
        never = self.submit("never", "--not-before", "2099-01-01T00:00:00Z")
        late = self.submit("late", "--after", never, "--completion-window", "2h")
        self.run_one("now")
        for job in [*timed, late]:
            self.assert_waits(job)
        self.jump(-6 * HOUR_S)
        self.run_one("six hours ago")
        for job in [*timed, late]:
            self.assert_waits(job)
        self.jump(3 * HOUR_S)
        self.run_one("in three hours")
        for job in timed:
            self.assertEqual(self.client("wait", job).returncode, 0, self.server.tail())
        self.assertEqual(self.client("wait", late).returncode, STOPPED, self.server.tail())
        self.client("cancel", never)
        self.jump(-DAY_S)
        self.run_one("yesterday")
        self.check_counts()
        # A day that passes during the drain is no time that it took.
        self.server.terminate()
        self.jump(DAY_S)
        self.assertEqual(self.server.wait(), 0, self.server.tail())

    def test_what_runs_is_as_it_was(self):
        print(f"seed {self.options.seed}", file=sys.stderr)
        chance = random.Random(self.options.seed)
        lives = []
        for number in range(self.options.jumps):
            if not lives or not lives[-1].thread.is_alive():
                lives.append(ShortLife(self, self.server, f"jump {number}"))
            self.server.died_within(chance.uniform(0, 0.3))
            self.jump(chance.randint(-DAY_S, DAY_S))
            if number % 10 == 9:
                if chance.random() < 0.5:
                    self.server.kill()
                else:
                    self.assertEqual(self.server.drain(), 0, self.server.tail())
                self.launch()
        for life in lives:
            life.thread.join()
            self.check_short(life)
        self.check_counts()
        self.assertEqual(self.server.drain(), 0)


if __name__ == "__main__":
    ClockTest.options, rest = ARGUMENTS.parse_known_args()
    unittest.main(argv=sys.argv[:1] + rest, verbosity=2)
