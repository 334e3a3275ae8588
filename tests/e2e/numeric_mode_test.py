#!/usr/bin/env python3
"""What fixes a job's numbers goes with it through the daemon: its answers are those of the engine alone."""

import json
import random
import re
import subprocess
import unittest

from e2e_lib import BUILD, EndToEndTest, run_client, tiny_pack, write_rows

ENGINE_ANSWERS = BUILD / "tests" / "support" / "engine_answers"
# What `run` is asked for, and the engine's own words for it.
MODES = {
    "int8": (["--kv-type", "int8"], ["bf16", "int8", "1"], "bf16/kv int8/device"),
    "int4": (["--kv-type", "int4"], ["bf16", "int4", "1"], "bf16/kv int4/device"),
    "f32 int4": (["--kv-type", "int4", "--compute-type", "f32"], ["f32", "int4", "1"],
                 "f32/kv int4/device"),
    "sparse": (["--sparse-attention", "0.1"], ["bf16", "none", "0.1"], "bf16/sparse 0.1/device"),
    "sparse int4": (["--sparse-attention", "0.1", "--kv-type", "int4"], ["bf16", "int4", "0.1"],
                    "bf16/kv int4/sparse 0.1/device"),
}
PLAIN = "bf16/device"


def make_rows(count):
    draw = random.Random(1)
    return [{"id": str(i), "prompt": [draw.randrange(200) for _ in range(draw.randint(30, 150))],
             "max_tokens": draw.randint(20, 90), "ignore_eos": True} for i in range(count)]


def answers_of_engine(rows, pack, *words):
    """[token ids of each row], and the engine's numeric mode."""
    lines = [" ".join(map(str, [row["max_tokens"], *row["prompt"]])) for row in rows]
    run = subprocess.run([ENGINE_ANSWERS, pack, *words], input="\n".join(lines), text=True,
                         capture_output=True, check=True)
    mode, *answers = run.stdout.splitlines()
    return [[int(token) for token in answer.split()] for answer in answers], mode


def last_mode(daemon):
    """The results' numeric mode is the engine's; nothing but the log has it in text."""
    return re.findall(r"model_loaded .*\bmode=(.*) load_us=", daemon.log_of_this_start())[-1]


class NumericModeTest(EndToEndTest):
    def setUp(self):
        super().setUp()
        self.pack = tiny_pack("llama_tied")

    def start(self, *options):
        return self.daemon("--model", self.pack, *options).start()

    def answers(self, daemon, rows, *options, name):
        """[token ids of each row], and the mode in which a model was loaded last."""
        results = {row["id"]: row for row in
                   self.run_job(daemon, rows, "--token-ids", *options, name=name)}
        return [results[row["id"]]["token_ids"] for row in rows], last_mode(daemon)

    def test_answers_are_those_of_the_engine_alone(self):
        rows = make_rows(12)
        daemon = self.start()
        plain, mode = self.answers(daemon, rows, name="plain")
        self.assertEqual((plain, mode), answers_of_engine(rows, self.pack, "bf16", "none", "1"))
        self.assertEqual(mode, PLAIN)
        for name, (options, words, expected_mode) in MODES.items():
            with self.subTest(name):
                answers, mode = self.answers(daemon, rows, *options, name=name)
                self.assertEqual((answers, mode), answers_of_engine(rows, self.pack, *words))
                self.assertEqual(mode, expected_mode)
                self.assertNotEqual(answers, plain)

    def test_a_job_that_was_interrupted_goes_on_in_its_mode(self):
        rows = make_rows(24)
        options, words, _ = MODES["sparse int4"]
        # Other defaults than the job has: they are of jobs that do not say.
        daemon = self.start("--max-block-requests", "4", "--kv-type", "int8")
        results = {row["id"]: row for row in self.run_job_through_a_drain(
            daemon, rows, *options, result_options=["--token-ids"])}
        expected, mode = answers_of_engine(rows, self.pack, *words)
        self.assertEqual([results[row["id"]]["token_ids"] for row in rows], expected)
        self.assertEqual(last_mode(daemon), mode)

    def test_the_daemons_default_is_of_jobs_that_do_not_say(self):
        rows = make_rows(4)
        daemon = self.start("--kv-type", "int8", "--sparse-attention", "0.2")
        self.assertEqual(self.answers(daemon, rows, name="default"),
                         answers_of_engine(rows, self.pack, "bf16", "int8", "0.2"))
        self.assertEqual(self.answers(daemon, rows, "--kv-type", "none", "--sparse-attention", "1",
                                      name="none"),
                         answers_of_engine(rows, self.pack, "bf16", "none", "1"))
        info = run_client("server", "info", "--json", address=daemon.address)
        self.assertEqual(json.loads(info.stdout)["sparse_attention"], 0.2)

    def test_a_share_that_is_none_is_refused(self):
        rows = write_rows(self.folder / "rows.jsonl", make_rows(1))
        for share in "0", "1.5", "nan", "-0.1":
            run = run_client("submit", rows, "--sparse-attention", share)
            self.assertEqual(run.returncode, 2)
            self.assertIn("above 0, at most 1", run.stderr)

    def test_auto_changes_no_number_unless_the_operator_allowed_it(self):
        rows = make_rows(4)
        expected = answers_of_engine(rows, self.pack, "bf16", "none", "1")
        daemon = self.start("--kv-type", "auto")
        self.assertEqual(self.answers(daemon, rows, name="default"), expected)
        self.assertEqual(self.answers(daemon, rows, "--kv-type", "auto", name="asked"), expected)


if __name__ == "__main__":
    unittest.main(verbosity=2)
