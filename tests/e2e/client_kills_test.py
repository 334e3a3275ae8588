#!/usr/bin/env python3
"""`nightshift run` killed with kill -9 at random moments: the file is an undisturbed run's to the byte.

Usage: client_kills_test.py [--kills N] [--seed N]
"""

import argparse
import contextlib
import random
import secrets
import subprocess
import sys
import unittest

from e2e_lib import (FAKE_NIGHTSHIFTD, EndToEndTest, read_rows, run_client, start_client,
                     write_rows)

NUM_ROWS = 4_000
# Some die while they attach or write, some behind the checkpoint of their first second.
LIVES_S = ((0, 0.2), (0, 0.5), (1.1, 1.6))
ARGUMENTS = argparse.ArgumentParser()
ARGUMENTS.add_argument("--kills", type=int, default=20)
ARGUMENTS.add_argument("--seed", type=int, default=secrets.randbelow(1 << 32))


class ClientKillsTest(EndToEndTest):
    options = None  # of the command line

    def test_a_run_that_is_killed_again_and_again_makes_the_same_file(self):
        rows = [{"id": str(i), "prompt": f"row {i}", "max_tokens": 1 + i % 40, "seed": i}
                for i in range(NUM_ROWS)]
        calm = self.daemon(name="calm", executable=FAKE_NIGHTSHIFTD).start()
        expected = {row["id"]: row["text"] for row in self.run_job(calm, rows, name="calm")}
        calm.close()
        # One request at a time: results come all along the kills, not all at once.
        self.server = self.daemon("--max-block-requests", "1", executable=FAKE_NIGHTSHIFTD).start()
        self.source = write_rows(self.folder / "in.jsonl", rows)
        stormy, undisturbed = self.target("stormy"), self.target("undisturbed")
        print(f"seed {self.options.seed}", file=sys.stderr)
        self.kill_runs(stormy)
        for target in (stormy, undisturbed):
            done = run_client(*self.command(target), address=self.server.address)
            self.assertEqual(done.returncode, 0, done.stderr + self.server.tail())
        self.assertEqual(stormy.read_bytes(), undisturbed.read_bytes())
        self.assertEqual({row["id"]: row["text"] for row in read_rows(stormy)}, expected)
        listed = run_client("list", "--json", address=self.server.address)
        self.assertEqual(len(listed.stdout.splitlines()), 1, "every run is the same job")
        self.assertEqual([path.name for path in self.folder.glob("stormy*")], [stormy.name])

    def target(self, name):
        return self.folder / f"{name}.results.jsonl"

    def command(self, target):
        return ("run", self.source, "-o", target)

    def kill_runs(self, target):
        """Kills so many runs; one that is done before it is killed does not count."""
        chance = random.Random(self.options.seed)
        kills = resumed = 0
        while kills < self.options.kills:
            client = start_client(*self.command(target), address=self.server.address)
            with contextlib.suppress(subprocess.TimeoutExpired):
                client.wait(timeout=chance.uniform(*chance.choice(LIVES_S)))
            client.kill()
            _, said = client.communicate()
            resumed += "going on after" in said
            if target.exists():
                self.assertEqual(len(read_rows(target)), NUM_ROWS, "a file that is there is whole")
                target.unlink()
            else:
                kills += 1
        print(f"{kills} kills, {resumed} runs went on where another had ended", file=sys.stderr)


if __name__ == "__main__":
    ClientKillsTest.options, rest = ARGUMENTS.parse_known_args()
    unittest.main(argv=[sys.argv[0], *rest], verbosity=2)
