#!/usr/bin/env python3
"""`import --random` and `bench`: a pack of random weights is made, measured, and serves texts."""

import json
import shutil
import signal
import unittest

from e2e_lib import LIMIT_S, EndToEndTest, read_rows, run_client, start_client, write_rows

JOB = ("--requests", "6", "--prompt-tokens", "40", "--output-tokens", "5")


def byte_alphabet():
    """The 256 letters that stand for bytes in byte-level BPE (GPT-2's bytes_to_unicode)."""
    letters, others = [], 0
    for byte in range(256):
        if 33 <= byte <= 126 or 161 <= byte <= 172 or byte >= 174:
            letters.append(chr(byte))
        else:
            letters.append(chr(256 + others))
            others += 1
    return letters


class BenchTest(EndToEndTest):
    def make_pack(self, name, *options):
        pack = self.folder / name
        done = run_client("import", "--random", "tiny", "--output", pack, *options)
        self.assertEqual(done.returncode, 0, done.stderr)
        return pack

    def bench(self, pack, *options):
        done = run_client("bench", pack, "--memory-budget", "32MiB", *JOB, *options)
        self.assertEqual(done.returncode, 0, done.stderr)
        return done.stdout

    def test_a_signal_ends_a_command_that_works_for_long(self):
        scratch = self.folder / "scratch"
        scratch.mkdir()
        for number in (signal.SIGINT, signal.SIGTERM):
            with start_client("import", "--random", "7b", "--output", scratch / "pack") as client:
                while not any(scratch.iterdir()) and client.poll() is None:
                    pass
                client.send_signal(number)
                client.communicate(timeout=LIMIT_S)
                self.assertEqual(client.returncode, -number)
            shutil.rmtree(scratch)
            scratch.mkdir()

    def test_bench_tells_rates_for_people_and_as_json(self):
        pack = self.make_pack("pack")
        text = self.bench(pack)
        for word in ("prefill", "decode", "latency of the block", "KV pages", "6 requests finished"):
            self.assertIn(word, text)
        self.assertNotIn("projected", text)
        resident = json.loads(self.bench(pack, "--json"))
        streamed = json.loads(self.bench(pack, "--json", "--weight-budget", "0"))
        for run in (resident, streamed):
            self.assertEqual(run["finished"], 6)
            self.assertEqual(run["prefill"]["tokens"], 240)
            self.assertEqual(run["decode"]["tokens"], 24)
            self.assertGreater(run["tokens_per_s"], 0)
            self.assertLessEqual(run["memory"]["taken_bytes"], run["memory"]["budget_bytes"])
        self.assertEqual(resident["disk"]["read_bytes"], 0)
        self.assertGreaterEqual(streamed["disk"]["read_bytes"],
                                streamed["memory"]["streamed_weight_bytes"] *
                                (len(streamed["sweeps"]) - 1))

    def test_the_timeline_of_a_run_goes_to_a_file_that_was_not_there(self):
        pack = self.make_pack("pack")
        trace = self.folder / "trace.json"
        text = self.bench(pack, "--weight-budget", "0", "--timeline", trace)
        self.assertRegex(text, r"lanes +busy: read \d+ % \(\d+ MiB\).*compute \d+ %.*; bottleneck: ")
        events = json.loads(trace.read_text(encoding="utf-8"))["traceEvents"]
        self.assertEqual({event["name"] for event in events if event["ph"] == "X"},
                         {"read weights", "compute"})
        again = run_client("bench", pack, "--memory-budget", "32MiB", *JOB, "--timeline", trace)
        self.assertEqual(again.returncode, 1)
        self.assertIn("it exists", again.stderr)

    def test_a_cut_run_says_what_is_projected(self):
        pack = self.make_pack("pack")
        self.assertIn("projected: the whole job in", self.bench(pack, "--sweeps", "3"))
        run = json.loads(self.bench(pack, "--start-context", "41", "--json"))
        self.assertTrue(run["cut"])
        self.assertEqual(run["prefill"]["tokens"], 0)
        self.assertIsNone(run["projected"])

    def test_a_pack_with_a_borrowed_tokenizer_serves_texts(self):
        texts = self.folder / "texts"
        texts.mkdir()
        vocabulary = {letter: i for i, letter in enumerate(byte_alphabet())}
        (texts / "tokenizer.json").write_text(json.dumps({
            "version": "1.0", "added_tokens": [], "normalizer": None, "post_processor": None,
            "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": False, "use_regex": True},
            "decoder": {"type": "ByteLevel"},
            "model": {"type": "BPE", "vocab": vocabulary, "merges": []}}), encoding="utf-8")
        daemon = self.daemon("--model", self.make_pack("pack", "--tokenizer", texts)).start()
        rows = write_rows(self.folder / "rows.jsonl",
                          [{"id": "a", "prompt": "Any text at all", "max_tokens": 4}])
        output = self.folder / "results.jsonl"
        done = run_client("run", rows, "-o", output, address=daemon.address)
        self.assertEqual(done.returncode, 0, done.stderr)
        row = read_rows(output)[0]
        self.assertEqual(row["usage"]["prompt_tokens"], len("Any text at all"))
        self.assertEqual(row["usage"]["completion_tokens"], 4)
        self.assertEqual(daemon.drain(), 0)

    def test_refusals_name_what_is_wrong(self):
        pack = self.make_pack("pack")
        for arguments, code, words in [
                (("import", "--random", "opt-7b", "-o", self.folder / "x"), 9, "opt-6.7b"),
                (("import", "--random", "tiny", "-o", pack), 1, "it exists"),
                (("import", "--random", "llama-3.1-405b", "--weights", "f32", "-o",
                  self.folder / "x"), 10, "bytes, "),
                (("import", "--random", "tiny", "folder", "-o", self.folder / "x"), 2, "--random"),
                (("bench", self.folder / "none"), 6, "none"),
                (("bench", pack, "--requests", "0"), 2, "--requests is 0"),
                (("bench", pack, "--memory-budget", "1MiB"), 10, "raise the budget")]:
            done = run_client(*arguments)
            self.assertEqual(done.returncode, code, f"{arguments}: {done.stderr}")
            self.assertIn(words, done.stderr)


if __name__ == "__main__":
    unittest.main(verbosity=2)
