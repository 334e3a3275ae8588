#!/usr/bin/env python3
"""A real model, end to end: every form of row through daemon and command line."""

import unittest

import e2e_lib
from e2e_lib import EndToEndTest, run_client, smollm2_pack, write_rows

QUESTION = "What is the capital of France?"


class QuickTest(EndToEndTest):
    def start(self):
        return self.daemon("--model", smollm2_pack()).start()

    def test_plain_rows_come_back_in_the_plain_form(self):
        results = self.run_job(self.start(), [
            {"id": "chat", "messages": [{"role": "user", "content": QUESTION}], "max_tokens": 24},
            {"id": "text", "prompt": "The capital of France is", "max_tokens": 4},
            {"id": "stop", "prompt": "One, two, three, four,", "max_tokens": 24, "stop": ["six"]},
        ])
        by_id = {row["id"]: row for row in results}
        self.assertEqual(sorted(by_id), ["chat", "stop", "text"])
        self.assertIn("Paris", by_id["chat"]["text"])
        self.assertIn("Paris", by_id["text"]["text"])
        self.assertNotIn("six", by_id["stop"]["text"])
        self.assertEqual(by_id["stop"]["finish_reason"], "stop")
        self.assertEqual(by_id["stop"]["stop_reason"], "six")
        self.assertEqual(by_id["text"]["finish_reason"], "length")
        self.assertEqual(by_id["text"]["usage"]["completion_tokens"], 4)

    def test_openai_rows_come_back_in_the_openai_form(self):
        results = self.run_job(self.start(), [
            {"custom_id": "a", "method": "POST", "url": "/v1/chat/completions",
             "body": {"model": "smollm2", "max_tokens": 24, "logprobs": True, "top_logprobs": 2,
                      "messages": [{"role": "user", "content": QUESTION}]}},
            {"custom_id": "b", "method": "POST", "url": "/v1/completions",
             "body": {"model": "smollm2", "prompt": "The capital of France is", "max_tokens": 4}},
        ])
        by_id = {row["custom_id"]: row for row in results}
        self.assertEqual(sorted(by_id), ["a", "b"])
        for row in results:
            self.assertIsNone(row["error"])
            self.assertEqual(row["response"]["status_code"], 200)
        chat = by_id["a"]["response"]["body"]
        self.assertEqual(chat["object"], "chat.completion")
        self.assertIn("Paris", chat["choices"][0]["message"]["content"])
        logprobs = chat["choices"][0]["logprobs"]["content"]
        self.assertLessEqual(len(logprobs), chat["usage"]["completion_tokens"])
        self.assertTrue(all(len(token["top_logprobs"]) == 2 for token in logprobs))
        self.assertTrue(all(token["logprob"] <= 0 for token in logprobs))
        completion = by_id["b"]["response"]["body"]
        self.assertEqual(completion["object"], "text_completion")
        self.assertIn("Paris", completion["choices"][0]["text"])

    def test_the_same_file_again_attaches_to_the_same_job(self):
        daemon = self.start()
        rows = [{"id": "x", "prompt": "Blue is", "max_tokens": 3, "temperature": 1.0}]
        first = self.run_job(daemon, rows)
        self.assertEqual(self.run_job(daemon, rows), first)
        listed = run_client("list", "--json", address=daemon.address)
        self.assertEqual(listed.returncode, 0, listed.stderr)
        self.assertEqual(listed.stdout.count('"jobs/'), 1, listed.stdout)

    def test_submit_wait_and_results_make_the_same_file_as_run(self):
        daemon = self.start()
        rows = [{"id": str(i), "prompt": f"{i} plus one is", "max_tokens": 3} for i in range(5)]
        ran = self.run_job(daemon, rows)
        source = write_rows(self.folder / "again.jsonl", rows)
        submitted = run_client("submit", source, "--run-key", "again", address=daemon.address)
        self.assertEqual(submitted.returncode, 0, submitted.stderr)
        job = submitted.stdout.strip()
        self.assertEqual(run_client("wait", job, address=daemon.address).returncode, 0)
        target = self.folder / "again.results.jsonl"
        fetched = run_client("results", job, "--output", target, address=daemon.address)
        self.assertEqual(fetched.returncode, 0, fetched.stderr)
        text = {row["id"]: row["text"] for row in e2e_lib.read_rows(target)}
        self.assertEqual(text, {row["id"]: row["text"] for row in ran})


class PrivateDaemonTest(EndToEndTest):
    def test_run_with_a_pack_needs_no_daemon(self):
        source = write_rows(self.folder / "in.jsonl",
                            [{"id": "a", "prompt": "The capital of France is", "max_tokens": 4}])
        target = self.folder / "out.jsonl"
        done = run_client("run", source, "--output", target, "--model", smollm2_pack(),
                          address=f"unix:{self.folder}/nobody")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(done.stdout, "")
        self.assertIn("Paris", e2e_lib.read_rows(target)[0]["text"])


if __name__ == "__main__":
    unittest.main(verbosity=2)
