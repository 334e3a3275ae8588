#!/usr/bin/env python3
"""Drain and restart, signals, two models in turn, cancel, memory under its budget."""

import ctypes
import pathlib
import re
import signal
import sys
import unittest

from e2e_lib import (MIB, PACKS, EndToEndTest, read_rows, run_client, smollm2_pack, start_client,
                     tiny_pack, write_rows)


class DrainTest(EndToEndTest):
    def test_a_drained_job_is_complete_after_a_restart(self):
        rows = [{"id": str(i), "prompt": f"{i} and", "max_tokens": 24} for i in range(48)]
        source = write_rows(self.folder / "in.jsonl", rows)
        target = self.folder / "out.jsonl"
        daemon = self.daemon("--model", smollm2_pack(), "--max-block-requests", "8").start()
        submitted = run_client("submit", source, address=daemon.address)
        self.assertEqual(submitted.returncode, 0, submitted.stderr)
        job = submitted.stdout.strip()
        follower = start_client("results", job, "--follow", address=daemon.address)
        self.addCleanup(follower.kill)
        self.assertTrue(follower.stdout.readline())  # mid-job: something is published
        self.assertEqual(daemon.drain(), 0)

        daemon.start()
        waited = run_client("wait", job, address=daemon.address)
        self.assertEqual(waited.returncode, 0, waited.stderr)
        done = run_client("results", job, "--output", target, address=daemon.address)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(sorted(int(row["id"]) for row in read_rows(target)), list(range(48)))
        follower.kill()
        follower.communicate()


class SignalTest(EndToEndTest):
    def test_a_signal_that_a_thread_of_a_library_is_given_drains_all_the_same(self):
        daemon = self.daemon("--model", tiny_pack("llama")).start()
        pid = daemon.pid
        term = 1 << (signal.SIGTERM - 1)
        open_threads = [
            int(folder.name) for folder in pathlib.Path(f"/proc/{pid}/task").iterdir()
            if int(folder.name) != pid and not term & int(
                re.search(r"SigBlk:\s*(\w+)", (folder / "status").read_text())[1], 16)]
        if not open_threads:
            self.skipTest("every thread of this daemon blocks SIGTERM")
        tgkill = 234  # x86-64
        self.assertEqual(
            ctypes.CDLL(None).syscall(tgkill, pid, open_threads[0], signal.SIGTERM), 0)
        self.assertEqual(daemon.wait(), 0)
        self.assertIn("stopped", daemon.tail())


class ModelsTest(EndToEndTest):
    def test_models_of_a_folder_take_turns(self):
        smollm2_pack()
        tiny_pack("llama_tied")
        daemon = self.daemon("--models", PACKS).start()
        text = [{"id": "a", "prompt": "The capital of France is", "max_tokens": 4}]
        tokens = [{"id": "a", "prompt": [5, 6, 7], "max_tokens": 4}]
        for turn in ("first", "second"):
            options = ("--run-key", turn)
            real = self.run_job(daemon, text, "--model", "smollm2", *options)
            self.assertIn("Paris", real[0]["text"])
            tiny = self.run_job(daemon, tokens, "--model", "llama_tied", "--token-ids",
                                *options)
            self.assertEqual(len(tiny[0]["token_ids"]), 4)
        listed = run_client("models", address=daemon.address)
        self.assertIn("smollm2", listed.stdout)
        self.assertIn("llama_tied", listed.stdout)

    def test_an_unknown_model_is_refused_with_those_that_exist(self):
        smollm2_pack()
        daemon = self.daemon("--models", PACKS).start()
        source = write_rows(self.folder / "in.jsonl", [{"id": "a", "prompt": "x"}])
        done = run_client("run", source, "--output", self.folder / "out.jsonl", "--model", "gpt",
                          address=daemon.address)
        self.assertEqual(done.returncode, 6, done.stderr)
        self.assertIn("smollm2", done.stderr)


class CancelTest(EndToEndTest):
    def test_a_cancelled_job_keeps_what_was_finished_and_accounts_for_the_rest(self):
        rows = [{"id": str(i), "prompt": f"{i} and", "max_tokens": 200} for i in range(64)]
        source = write_rows(self.folder / "in.jsonl", rows)
        daemon = self.daemon("--model", smollm2_pack(), "--max-block-requests", "8").start()
        job = run_client("submit", source, address=daemon.address).stdout.strip()
        cancelled = run_client("cancel", job, address=daemon.address)
        self.assertEqual(cancelled.returncode, 0, cancelled.stderr)
        self.assertEqual(run_client("wait", job, address=daemon.address).returncode, 5)
        target = self.folder / "out.jsonl"
        run_client("results", job, "--output", target, address=daemon.address)
        self.assertEqual(sorted(int(row["id"]) for row in read_rows(target)), list(range(64)))


class MemoryTest(EndToEndTest):
    BUDGET = 768 * MIB

    def test_memory_stays_under_the_budget_and_100_mib(self):
        daemon = self.daemon("--model", smollm2_pack(), "--memory-budget",
                             str(self.BUDGET)).start()
        rows = [{"id": str(i), "prompt": "word " * (50 * (i % 12) + 1), "max_tokens": 8}
                for i in range(48)]
        self.run_job(daemon, rows)
        peak = daemon.memory_bytes("VmHWM")
        print(f"peak RSS {peak / MIB:.0f} MiB, budget {self.BUDGET / MIB:.0f} MiB", file=sys.stderr)
        self.assertLess(peak, self.BUDGET + 100 * MIB)

    def test_a_row_over_the_budget_is_refused_with_numbers_and_others_finish(self):
        daemon = self.daemon("--model", smollm2_pack(), "--memory-budget", "200MiB").start()
        results = self.run_job(daemon, [
            {"id": "long", "prompt": "word " * 6000, "max_tokens": 2},
            {"id": "short", "prompt": "The capital of France is", "max_tokens": 4}], exit_code=3)
        by_id = {row["id"]: row for row in results}
        self.assertRegex(by_id["long"]["error"]["message"], "6001 prompt.*188 .*pages")
        self.assertIn("Paris", by_id["short"]["text"])
        self.assertLess(daemon.memory_bytes("VmHWM"), (200 + 100) * MIB)

    def test_a_model_over_the_budget_is_refused_with_numbers(self):
        daemon = self.daemon("--model", smollm2_pack(), "--memory-budget", str(64 * MIB)).start()
        source = write_rows(self.folder / "in.jsonl", [{"id": "a", "prompt": "x"}])
        done = run_client("run", source, "--output", self.folder / "out.jsonl",
                          address=daemon.address)
        self.assertEqual(done.returncode, 4, done.stderr + daemon.tail())
        self.assertRegex(done.stderr, str(64 * MIB))


if __name__ == "__main__":
    unittest.main(verbosity=2)
