#!/usr/bin/env python3
"""Disks that cannot read, packs that change under the daemon, memory that somebody else takes: a
clear error, no wrong text, and the daemon lives."""

import json
import os
import shutil
import subprocess
import sys
import unittest

from e2e_lib import (BUILD, LIMIT_S, MIB, Cgroup, Daemon, EndToEndTest, read_rows, run_client,
                     smollm2_bf16_pack, start_client, tiny_pack, write_rows)

FAULTS = BUILD / "tests" / "support" / "libread_faults.so"
TENSOR = "layers.1.up.weight"
ROWS = [{"id": str(i), "prompt": [5 + i, 6, 7, 8], "max_tokens": 12, "temperature": 0}
        for i in range(20)]
OTHER = 1  # exit codes of the client
JOB_FAILED = 4


class FaultsTest(EndToEndTest):
    def setUp(self):
        super().setUp()
        self.pack = self.folder / "llama"
        shutil.copytree(tiny_pack("llama"), self.pack)
        self.extent = self.pack / "weights.extent"
        manifest = json.loads((self.pack / "manifest.json").read_text())
        tensor = next(t for t in manifest["tensors"] if t["name"] == TENSOR)
        _, _, offset, size, _ = tensor["shards"][0]
        self.place = offset + size // 2
        self.fault = self.folder / "fault"
        # A page of weights: all but what always stays is read in every sweep.
        folder = self.folder / "daemon"
        folder.mkdir()
        self.server = Daemon(
            folder, "--model", self.pack, "--model", tiny_pack("llama_tied"), "--weight-budget", "1",
            prefix=["env", f"LD_PRELOAD={FAULTS}", f"READ_FAULT={self.fault}"])
        self.addCleanup(self.server.close)
        self.server.start()
        self.expected = self.run_rows("before")

    def run_rows(self, name, model="llama", exit_code=0):
        """Token ids of the rows that have some, by row."""
        source = write_rows(self.folder / f"{name}.jsonl", ROWS)
        target = self.folder / f"{name}.results.jsonl"
        done = run_client("run", source, "-o", target, "--model", model,
                          "--token-ids", "--run-key", name, address=self.server.address)
        self.assertEqual(done.returncode, exit_code, done.stderr + self.server.tail())
        self.said = done.stderr
        rows = read_rows(target) if target.exists() else []
        return {row["id"]: row["token_ids"] for row in rows if "token_ids" in row}

    def assert_lives(self):
        self.assertEqual(len(self.run_rows("other", model="llama_tied")), len(ROWS))

    def flip_byte(self):
        with open(self.extent, "r+b") as stream:
            stream.seek(self.place)
            byte = stream.read(1)[0]
            stream.seek(self.place)
            stream.write(bytes([byte ^ 0x55]))

    def test_one_failed_read_sends_rows_back_once(self):
        self.fault.write_text(f"{self.place} once")
        self.assertEqual(self.run_rows("job"), self.expected)
        self.assertFalse(self.fault.exists())
        self.assertIn("sweep_failed", self.server.tail())

    def test_a_place_that_cannot_be_read_fails_the_job_by_file_and_offset(self):
        self.fault.write_text(f"{self.place} always")
        self.run_rows("job", exit_code=JOB_FAILED)
        self.assert_names_the_fault("Input/output error")
        self.fault.unlink()
        self.assert_lives()
        self.assertEqual(self.run_rows("again"), self.expected)

    def test_a_flipped_byte_is_found_and_the_model_served_no_more(self):
        self.flip_byte()
        rows = self.run_rows("job", exit_code=JOB_FAILED)
        self.assert_names_the_fault("checksum")
        # What had ended before the byte was read again is right.
        self.assertEqual(rows, {row: self.expected[row] for row in rows})
        models = run_client("models", address=self.server.address)
        self.assertIn(TENSOR, models.stdout)
        self.assert_lives()
        self.run_rows("refused", exit_code=OTHER)
        self.assertIn(TENSOR, self.said)
        self.flip_byte()
        self.assertEqual(self.run_rows("again"), self.expected)

    def test_a_pack_that_is_cut_off_is_a_clear_error(self):
        os.truncate(self.extent, 4096)
        self.run_rows("job", exit_code=JOB_FAILED)
        self.assertRegex(self.said + self.server.tail(), "the file ends there|has 4096 bytes")
        self.assert_lives()

    def test_a_pack_that_is_replaced_goes_on_with_the_old_one_or_the_new_one(self):
        shutil.move(self.pack, self.folder / "old")
        shutil.copytree(tiny_pack("llama_tied"), self.pack)
        self.assertEqual(self.run_rows("job"), self.expected)
        others = self.run_rows("switch", model="llama_tied")
        self.assertEqual(self.run_rows("new"), others)

    def assert_names_the_fault(self, what):
        said = self.said + self.server.tail()
        for part in (TENSOR, "weights.extent at offset", what):
            self.assertIn(part, said)


class OutOfMemoryTest(EndToEndTest):
    """A neighbour in the memory cgroup of the daemon takes what there is."""

    LIMIT_MIB = 900
    ROWS = [{"id": str(i), "prompt": f"A story about {i} small boats:", "max_tokens": 96,
             "temperature": 0, "ignore_eos": True} for i in range(8)]

    def setUp(self):
        super().setUp()
        try:
            self.group = Cgroup(f"nightshift-{os.getpid()}", self.LIMIT_MIB * MIB)
        except OSError as error:
            self.skipTest(f"no memory cgroup can be made here: {error}")
        self.addCleanup(self.group.remove)
        folder = self.folder / "daemon"
        folder.mkdir()
        self.server = Daemon(folder, "--model", smollm2_bf16_pack(), "--memory-budget", "420MiB",
                             prefix=self.group.enter())
        self.addCleanup(self.server.close)
        self.server.start()

    def start_neighbour(self):
        """Takes so much that the kernel has to end a process; gives it back when it ends."""
        neighbour = subprocess.Popen([*self.group.enter(), sys.executable, "-c", """
import sys
memory = bytearray(int(sys.argv[1]))
for place in range(0, len(memory), 4096):
    memory[place] = 1
print("full", flush=True)
sys.stdin.read()
""", str(self.LIMIT_MIB * MIB * 3 // 4)], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        self.addCleanup(neighbour.communicate)
        self.addCleanup(neighbour.kill)
        neighbour.stdout.readline()  # nothing where the kernel ended it too, after the engine
        return neighbour

    def test_the_engine_is_killed_and_the_job_goes_on_when_there_is_memory(self):
        calm = {row["id"]: row["text"] for row in self.run_job(self.server, self.ROWS, name="calm")}
        source = write_rows(self.folder / "job.jsonl", self.ROWS)
        target = self.folder / "job.results.jsonl"
        client = start_client("run", source, "-o", target, "--run-key", "job",
                              address=self.server.address)
        self.addCleanup(client.kill)
        while not run_client("list", "--state", "running", address=self.server.address).stdout:
            self.assertIsNone(client.poll(), "the job ended before the neighbour came")
        neighbour = self.start_neighbour()
        self.assertGreaterEqual(self.group.oom_kills(), 1)
        self.assertIsNone(self.server._process.poll())
        health = run_client("health", address=self.server.address)
        self.assertEqual(health.returncode, 0, health.stderr)
        neighbour.communicate()
        _, said = client.communicate(timeout=LIMIT_S)
        self.assertEqual(client.returncode, 0, said + self.server.tail())
        self.assertEqual({row["id"]: row["text"] for row in read_rows(target)}, calm)
        self.assertRegex(self.server.tail(), "was ended by signal 9 .*out of memory: the kernel")
        self.assertEqual(self.server.drain(), 0)


if __name__ == "__main__":
    unittest.main(verbosity=2)
