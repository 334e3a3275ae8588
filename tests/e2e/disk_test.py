#!/usr/bin/env python3
"""Disks that fail, forget and fill up under the daemon: it goes on, or ends with an error; what it
accepted and published is there all the same, once.

Usage: disk_test.py [--faults N | --every-fault] [--errors E...] [--power-losses N] [--seed N]
"""

import argparse
import collections
import contextlib
import json
import os
import random
import secrets
import shutil
import struct
import subprocess
import sys
import unittest

from client_life import DISK_FULL, Life, LifeTest, ShortLife, make_rows
from e2e_lib import BUILD, read_rows, run_client, start_client, write_rows
from power_loss import Disk

ARGUMENTS = argparse.ArgumentParser()
ARGUMENTS.add_argument("--faults", type=int, default=30, help="sampled")
ARGUMENTS.add_argument("--every-fault", action="store_true",
                       help="the first call, the second, ... until none fails")
ARGUMENTS.add_argument("--errors", nargs="+", default=["EIO", "ENOSPC", "short", "EINTR"],
                       help="that calls end with")
ARGUMENTS.add_argument("--power-losses", type=int, default=3)
ARGUMENTS.add_argument("--seed", type=int, default=secrets.randbelow(1 << 32))

NUM_MANY = 4000
DISK_FAULTS = BUILD / "tests" / "support" / "libdisk_faults.so"


class DiskTest(LifeTest):
    options = None  # of the command line
    num_rows = 12

    def setUp(self):
        super().setUp()
        print(f"seed {self.options.seed}", file=sys.stderr)
        self.chance = random.Random(self.options.seed)
        self.start_calm()
        self.move_pack_out()
        self.state = self.server.folder / "state"

    def launch_faulty(self, at="0 EIO", log=None):
        variables = {"LD_PRELOAD": str(DISK_FAULTS), "DISK_FAULTS_FOLDER": str(self.state),
                     "DISK_FAULTS_COUNTS": str(self.folder / "counts"), "DISK_FAULTS_AT": at}
        if log:
            variables["DISK_FAULTS_LOG"] = str(log)
        (self.folder / "counts").unlink(missing_ok=True)
        self.server.launch(variables)

    def counts(self):
        """Calls of the daemon that was launched last, and which of them failed, 0 for none."""
        return struct.unpack("qq", (self.folder / "counts").read_bytes())

    # --- the k-th call fails ---

    def test_a_call_that_fails_loses_nothing(self):
        self.launch_faulty()
        self.server.wait_ready()
        life = ShortLife(self, self.server, "calm")
        life.thread.join()
        self.assertEqual(self.server.drain(), 0)
        self.lives = [life]
        num_calls, _ = self.counts()
        hits = collections.Counter()
        if self.options.every_fault:
            for error in self.options.errors:
                hits.update(self.run_with_every_fault(error))
        else:
            for number in range(self.options.faults):
                error = self.options.errors[number % len(self.options.errors)]
                at = f"{self.chance.randint(1, num_calls)} {error}"
                hits[self.run_with_fault(at)] += 1
        self.check_lives()
        print(f"{num_calls} calls; {dict(hits)}", file=sys.stderr)
        self.assertGreater(hits["went on"], 0)
        if "EIO" in self.options.errors:
            self.assertGreater(hits["ended"] + hits["did not start"], 0)

    def run_with_every_fault(self, error):
        missed = 0
        at = 0
        while missed < 10:  # each run has its own order and number of calls
            at += 1
            hit = self.run_with_fault(f"{at} {error}")
            missed = missed + 1 if hit == "not reached" else 0
            yield hit
            if len(self.lives) == 50:
                self.check_lives()
            at = max(at, self.counts()[1])

    def run_with_fault(self, at):
        """One start of the daemon, in which one call fails; returns what became of it."""
        self.launch_faulty(at)
        hit = "went on"
        try:
            self.server.wait_ready()
        except AssertionError:
            hit = "did not start"
            self.assert_says("start_refused", at)
            self.server.start()
        life = ShortLife(self, self.server, f"life {at}")
        self.lives.append(life)
        while life.thread.is_alive():
            if hit == "went on" and self.server.died_within(0.02):
                hit = "ended"
                self.assert_says("store_failed", at)
                self.server.start()
            life.thread.join(timeout=0.02)
        if self.server.drain() != 0:
            self.assertEqual(hit, "went on", self.server.tail())
            hit = "ended"
            self.assert_says("store_failed", at)
        return hit if self.counts()[1] else "not reached"

    def assert_says(self, what, at):
        """The daemon has ended by itself with an error that it told, on a fault that was made."""
        code = self.server.wait()
        self.assertGreater(code, 0, at + self.server.tail())
        self.assertGreater(self.counts()[1], 0, at + self.server.tail())
        self.assertIn(what, self.server.tail(), at)

    def check_lives(self):
        self.server.start()
        for life in self.lives:
            self.check_short(life)
        self.lives = []
        self.check_counts()
        self.assertEqual(self.server.drain(), 0)

    # --- the power goes ---

    def test_what_was_synced_is_enough(self):
        lives = []
        for number in range(self.options.power_losses):
            disk = Disk(self.state)
            log = self.folder / "log"
            log.write_bytes(b"")
            # A sync that failed may have dropped what it did not write.
            fault = f"{self.chance.randint(1, 400)} EIO" if number % 4 == 3 else "0 EIO"
            self.launch_faulty(fault, log)
            if not lives or not lives[-1].thread.is_alive():
                lives.append(Life(self, self.server, f"power {number}", faults=4))
            if number % 5 != 4:  # else it may stop while it starts
                with contextlib.suppress(AssertionError):
                    self.server.wait_ready()
            self.server.died_within(self.chance.uniform(0.1, 0.8))
            self.server.kill()
            disk.replay(log)
            disk.lose_power(self.chance)
        self.server.start()
        for life in lives:
            self.check(life)
        self.check_counts()
        self.assertEqual(self.server.drain(), 0)
        print(f"{self.options.power_losses} power losses in {len(lives)} lives", file=sys.stderr)

    # --- the disk is full ---

    def test_a_full_disk_pauses_what_runs_and_refuses_what_comes(self):
        self.mount_small_disk()
        self.server = self.make_server("--model", self.folder / "pack", ballast="6MiB")
        self.server.start()
        many = write_rows(self.folder / "many.jsonl", make_rows(NUM_MANY))
        target = self.folder / "many.results.jsonl"
        client = start_client("run", many, "-o", target, address=self.server.address)
        self.addCleanup(client.communicate)
        self.addCleanup(client.kill)
        self.server.wait_for_log("model_loaded")
        filler = self.fill_disk()
        self.server.wait_for_log("disk_full")
        refused = run_client("submit", self.source, address=self.server.address)
        self.assertEqual(refused.returncode, DISK_FULL, refused.stderr)
        self.assertIn("disk", refused.stderr)
        job = json.loads(run_client("list", "--json", address=self.server.address).stdout)
        # What little there is to write has room: a change of a job, and a restart.
        for verb in ("pause", "resume"):
            done = run_client(verb, job["name"], address=self.server.address)
            self.assertEqual(done.returncode, 0, done.stderr + self.server.tail())
        self.assertEqual(self.server.drain(), 0)
        self.server.start()
        refused = run_client("submit", self.source, address=self.server.address)
        self.assertEqual(refused.returncode, DISK_FULL, refused.stderr)
        self.assertIsNone(client.poll())
        filler.unlink()
        self.server.wait_for_log("disk_has_room")
        self.assertEqual(client.wait(timeout=300), 0, self.server.tail())
        rows = read_rows(target)
        self.assertEqual(collections.Counter(row["id"] for row in rows),
                         collections.Counter(f"row-{i}" for i in range(NUM_MANY)))
        self.assertEqual([row for row in rows if "error" in row], [])
        self.assertEqual(self.server.drain(), 0)

    def mount_small_disk(self):
        shutil.rmtree(self.state)
        self.state.mkdir()
        mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=24m", "tmpfs", self.state],
                                 capture_output=True, text=True, check=False)
        if mounted.returncode != 0:
            self.skipTest(f"a small disk cannot be mounted here: {mounted.stderr.strip()}")
        self.addCleanup(subprocess.run, ["umount", "--lazy", self.state], check=True)

    def fill_disk(self):
        """Takes all but a little, while the daemon writes too: the last of it it fills itself."""
        filler = self.state / "filler"
        with open(filler, "wb", buffering=0) as stream:
            with contextlib.suppress(OSError):
                while True:
                    stream.write(bytes(64 << 10))
            stream.truncate(max(0, stream.tell() - (256 << 10)))
        return filler


if __name__ == "__main__":
    DiskTest.options, rest = ARGUMENTS.parse_known_args()
    unittest.main(argv=sys.argv[:1] + rest, verbosity=2)
