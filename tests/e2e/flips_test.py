#!/usr/bin/env python3
"""A bit flips in what a killed daemon has left: the next one refuses to start, or what it serves is
right and what it cannot serve is told. As many daemons look at a time as there are cores.

Usage: flips_test.py [--flips N] [--seed N]
"""

import argparse
import collections
import concurrent.futures
import contextlib
import json
import os
import queue
import random
import re
import secrets
import shutil
import subprocess
import sys
import unittest

from client_life import LifeTest, make_rows
from e2e_lib import LIMIT_S, read_rows, run_client, start_client, write_rows

ARGUMENTS = argparse.ArgumentParser()
ARGUMENTS.add_argument("--flips", type=int, default=50)
ARGUMENTS.add_argument("--seed", type=int, default=secrets.randbelow(1 << 32))

NUM_MANY = 500
FAILED_REQUESTS = 3  # exit code of the client
TOLD = re.compile("checksum|damaged|DATA_LOSS|corrupt|does not parse|malformed|not a database")


class FlipsTest(LifeTest):
    options = None  # of the command line

    def setUp(self):
        super().setUp()
        print(f"seed {self.options.seed}", file=sys.stderr)
        self.start_calm()
        self.move_pack_out()
        self.leave_state()

    def leave_state(self):
        """A job that has ended, one that is paused, and one in the middle of which the daemon is
        killed, a second after the log was emptied."""
        state = self.server.folder / "state"
        self.server.start()
        address = self.server.address
        held = run_client("submit", self.source, "--run-key", "held", address=address)
        self.held = held.stdout.strip()
        run_client("pause", self.held, address=address)
        self.many = write_rows(self.folder / "many.jsonl", make_rows(NUM_MANY))
        client = start_client("run", self.many, "-o", self.folder / "half.jsonl", "--run-key",
                              "half", address=address)
        self.addCleanup(client.kill)
        self.server.wait_for_log("model_loaded")
        self.server.died_within(0.1)
        self.server.kill()
        client.kill()
        client.communicate()
        self.base = self.folder / "base"
        shutil.copytree(state, self.base)
        self.files = [path.relative_to(self.base) for path in sorted(self.base.rglob("*"))
                      if path.is_file() and path.stat().st_size > 0 and
                      path.name not in ("lock", "ballast") and not path.name.endswith("-shm")]
        print(f"files {[(str(path), (self.base / path).stat().st_size) for path in self.files]}",
              file=sys.stderr)
        calm = self.folder / "calm-many.jsonl"
        self.server.start()
        done = run_client("run", self.many, "-o", calm, "--run-key", "half", address=address)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.expected |= {row["id"]: row["text"] for row in read_rows(calm)}
        self.assertEqual(self.server.drain(), 0)

    def test_no_flipped_bit_is_served(self):
        servers = queue.SimpleQueue()
        for number in range(os.cpu_count()):
            servers.put(self.make_server("--model", self.folder / "pack", block=256,
                                         name=f"daemon-{number}"))

        wrong = []

        def flip_and_look(number):
            server = servers.get()
            try:
                return self.look(server, number, self.flip(server.folder / "state", number))
            except AssertionError as error:
                wrong.append(str(error))
                return "wrong"
            finally:
                server.close()
                servers.put(server)

        with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
            hits = collections.Counter(pool.map(flip_and_look, range(self.options.flips)))
        print(f"{dict(hits)}", file=sys.stderr)
        self.assertEqual(wrong, [])
        self.assertGreater(hits["told"] + hits["did not start"], 0)

    def flip(self, state, number):
        """Copies the state and flips a bit of it; returns which."""
        chance = random.Random(f"{self.options.seed} {number}")
        shutil.rmtree(state, ignore_errors=True)
        shutil.copytree(self.base, state)
        name = chance.choice(self.files)
        with open(state / name, "r+b") as stream:
            size = stream.seek(0, 2)
            place = chance.randrange(size)
            stream.seek(place)
            byte = stream.read(1)[0]
            bit = chance.randrange(8)
            stream.seek(place)
            stream.write(bytes([byte ^ 1 << bit]))
        return f"flip {number}: bit {bit} of byte {place} of {name}"

    def look(self, server, number, flip):
        """What becomes of it: "did not start", "told", or "unnoticed", where all is right."""
        server.launch()
        try:
            server.wait_ready()
        except AssertionError:
            code = server.wait()
            self.assertGreater(code, 0, flip + server.tail())
            self.assertRegex(server.tail(), "start_refused .*DATA_LOSS", flip)
            return "did not start"
        told = False
        address = server.address
        target = self.folder / f"flip {number}.jsonl"
        run_client("resume", self.held, address=address)
        for arguments in (["run", self.many, "-o", target, "--run-key", "half"],
                          ["wait", self.held], ["results", self.held],
                          ["results", self.held, "--order", "input"], ["list"]):
            done = self.ask(server, *arguments)
            if done is None:
                break
            texts = done.stdout.splitlines() if arguments[0] == "results" else []
            if arguments[0] == "run" and target.exists():
                texts = target.read_text(encoding="utf-8").splitlines()
            said = server.log_of_this_start()
            for row in map(json.loads, texts):
                if "error" in row:
                    self.assertRegex(row["error"]["message"], TOLD, flip)
                else:
                    self.assertEqual(row["text"], self.expected[row["id"]], flip)
            if done.returncode == FAILED_REQUESTS:  # which say why in their results
                told = True
            elif done.returncode != 0:
                told = True
                self.assertRegex(done.stderr + said, TOLD, flip)
            elif arguments[0] == "run":
                self.assertEqual(len(texts), NUM_MANY, flip)
        code = server.drain()
        if code != 0:
            told = True
            self.assertEqual(code, 1, flip + server.tail())
            self.assertRegex(server.log_of_this_start(), TOLD, flip)
        return "told" if told else "unnoticed"

    def ask(self, server, *arguments):
        """The client that has ended, or None when the daemon ended first."""
        client = start_client(*arguments, address=server.address)
        for _ in range(LIMIT_S * 20):
            with contextlib.suppress(subprocess.TimeoutExpired):
                output, errors = client.communicate(timeout=0.05)
                return subprocess.CompletedProcess(arguments, client.returncode, output, errors)
            if server.died_within(0):
                break
        client.kill()
        client.communicate()
        self.assertTrue(server.died_within(0), f"{arguments} does not end; {server.tail()}")
        return None


if __name__ == "__main__":
    FlipsTest.options, rest = ARGUMENTS.parse_known_args()
    unittest.main(argv=sys.argv[:1] + rest, verbosity=2)
