#!/usr/bin/env python3
"""50,000 rows in and out of the daemon with a fake engine: memory does not grow with the job.
Other jobs of that size are listed, cancelled and deleted.

Usage: scale_test.py [--rows N]
"""

import argparse
import sys
import unittest

from e2e_lib import FAKE_NIGHTSHIFTD, MIB, EndToEndTest, read_rows, run_client, write_rows

STOPPED = 5  # exit code of the client: the job was cancelled

ARGUMENTS = argparse.ArgumentParser()
ARGUMENTS.add_argument("--rows", type=int, default=50_000)


class ScaleTest(EndToEndTest):
    options = None  # of the command line

    def test_memory_is_flat_in_the_size_of_a_job(self):
        daemon = self.daemon(executable=FAKE_NIGHTSHIFTD).start()
        self.run_rows(daemon, 1000)  # what any job needs
        daemon.reset_peak()
        before = daemon.memory_bytes("VmRSS")
        num_rows = self.options.rows
        results = self.run_rows(daemon, num_rows)
        growth = daemon.memory_bytes("VmHWM") - before
        print(f"daemon RSS {before / MIB:.0f} MiB, grew by {growth / MIB:.1f} MiB", file=sys.stderr)
        self.assertEqual(sorted(int(row["id"]) for row in results), list(range(num_rows)))
        self.assertLess(growth, 64 * MIB)
        self.assertLess(before + growth, 300 * MIB)

    def test_a_large_job_is_checked_listed_cancelled_and_deleted_in_bounded_memory(self):
        daemon = self.daemon(executable=FAKE_NIGHTSHIFTD).start()
        source = self.write(self.options.rows)

        def call(*arguments):
            done = run_client(*arguments, address=daemon.address, limit_s=3600)
            self.assertIn(done.returncode, (0, STOPPED), done.stderr + daemon.tail())
            return done.stdout

        call("submit", source, "--job-id", "large", "--not-before", "2099-01-01T00:00:00Z")
        self.assertIn("large", call("list"))
        call("cancel", "large")
        call("wait", "large")
        lines = sum(1 for _ in call("results", "large").splitlines())
        self.assertEqual(lines, self.options.rows, "a line for each row")
        call("delete", "large")
        peak = daemon.memory_bytes("VmHWM")
        print(f"daemon RSS at most {peak / MIB:.0f} MiB", file=sys.stderr)
        self.assertLess(peak, 300 * MIB)

    def write(self, num_rows):
        return write_rows(self.folder / "in.jsonl", (
            {"id": str(i), "prompt": f"document {i} " + "x" * (i % 97), "max_tokens": 1}
            for i in range(num_rows)))

    def run_rows(self, daemon, num_rows):
        source = self.write(num_rows)
        target = self.folder / "out.jsonl"
        done = run_client("run", source, "--output", target, address=daemon.address,
                          limit_s=3600)
        self.assertEqual(done.returncode, 0, done.stderr + daemon.tail())
        return read_rows(target)


if __name__ == "__main__":
    ScaleTest.options, rest = ARGUMENTS.parse_known_args()
    unittest.main(argv=sys.argv[:1] + rest, verbosity=2)
