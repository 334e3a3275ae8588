#!/usr/bin/env python3
"""Sampling options in every form of row, with a real model: penalties, bans, choices, echo."""

import json
import math
import unittest

from e2e_lib import ROOT, EndToEndTest, run_client, smollm2_pack, tiny_pack, write_rows

PARIS = "The capital of France is"
# As tests/engine/execute/smollm2_test.cc.
TOLERANCE = 3e-4


def completion(custom_id, **body):
    body = {"model": "smollm2", "prompt": PARIS, "max_tokens": 4} | body
    return {"custom_id": custom_id, "method": "POST", "url": "/v1/completions", "body": body}


def texts(row):
    """What a plain result says, all its choices."""
    return row["text"] if "text" in row else [choice["text"] for choice in row["choices"]]


class SamplingTest(EndToEndTest):
    def start(self, *options):
        return self.daemon("--model", smollm2_pack(), *options).start()

    def test_penalties_bans_and_lengths(self):
        results = self.run_job(self.start(), [
            {"id": "plain", "prompt": PARIS, "max_tokens": 4},
            {"id": "bad", "prompt": PARIS, "max_tokens": 12, "bad_words": ["Paris"]},
            {"id": "bias", "prompt": PARIS, "max_tokens": 40, "logit_bias": {"700": 60}},
            {"id": "penalty", "prompt": PARIS, "max_tokens": 40, "logit_bias": {"700": 60},
             "frequency_penalty": 2.0},
            {"id": "long", "max_tokens": 40, "min_tokens": 30, "logprobs": True,
             "messages": [{"role": "user", "content": "Say yes."}]},
            {"id": "endless", "max_tokens": 40, "ignore_eos": True,
             "messages": [{"role": "user", "content": "Say yes."}]},
            {"id": "min_p", "prompt": PARIS, "max_tokens": 4, "temperature": 1.5, "min_p": 1.0},
        ])
        by_id = {row["id"]: row for row in results}
        self.assertEqual(len(by_id), 7)
        self.assertIn("Paris", by_id["plain"]["text"])
        self.assertNotIn("Paris", by_id["bad"]["text"])
        piece = by_id["bias"]["text"][:len(by_id["bias"]["text"]) // 40]
        self.assertEqual(by_id["bias"]["text"], piece * 40)
        self.assertTrue(by_id["penalty"]["text"].startswith(piece * 2))
        self.assertLess(by_id["penalty"]["text"].count(piece), 40)
        self.assertGreaterEqual(by_id["long"]["usage"]["completion_tokens"], 30)
        self.assertEqual(by_id["endless"]["usage"]["completion_tokens"], 40)
        self.assertEqual(by_id["endless"]["finish_reason"], "length")
        self.assertEqual(by_id["min_p"]["text"], by_id["plain"]["text"])

    def test_a_length_that_nobody_asked_for_ends_at_the_context(self):
        daemon = self.daemon("--model", tiny_pack("llama_tied")).start()  # a context of 256 tokens
        results = self.run_job(daemon, [
            {"id": "open", "prompt": [5] * 100, "ignore_eos": True},
            {"id": "asked", "prompt": [5] * 100, "max_tokens": 157}], exit_code=3)
        by_id = {row["id"]: row for row in results}
        self.assertEqual(by_id["open"]["usage"]["completion_tokens"], 156)
        self.assertEqual(by_id["open"]["finish_reason"], "length")
        self.assertEqual(by_id["asked"]["error"]["code"], "context_length_exceeded")

    def test_options_of_the_command_hold_for_rows_that_do_not_say(self):
        results = self.run_job(self.start(), [
            {"id": "a", "prompt": PARIS, "max_tokens": 6},
            {"id": "b", "prompt": PARIS, "max_tokens": 6, "bad_words": ["Rome"], "n": 1},
        ], "--bad-word", "Paris", "--n", "2", "--temperature", "0.7", "--seed", "3")
        by_id = {row["id"]: row for row in results}
        self.assertEqual(len(by_id["a"]["choices"]), 2)
        self.assertFalse(any("Paris" in text for text in texts(by_id["a"])))
        self.assertIn("text", by_id["b"])

    def test_choices_come_in_one_line_each_from_its_own_seed_stream(self):
        rows = [{"id": "plain", "prompt": "Once upon a time", "max_tokens": 12, "temperature": 1.0,
                 "seed": 7, "n": 3},
                completion("legacy", n=2, temperature=1.0, seed=7, max_tokens=12, logprobs=0),
                {"custom_id": "chat", "method": "POST", "url": "/v1/chat/completions",
                 "body": {"model": "smollm2", "max_tokens": 12, "temperature": 1.0, "seed": 7,
                          "n": 2, "messages": [{"role": "user", "content": "Tell a story."}]}}]
        daemon = self.start()
        plain, legacy, chat = sorted(self.run_job(daemon, rows),
                                     key=lambda row: row.get("custom_id", "z"), reverse=True)
        self.assertEqual([choice["index"] for choice in plain["choices"]], [0, 1, 2])
        self.assertEqual(len(set(texts(plain))), 3)
        self.assertLessEqual(plain["usage"]["completion_tokens"], 36)
        self.assertGreater(plain["usage"]["completion_tokens"], 12)
        for line in legacy, chat:
            choices = line["response"]["body"]["choices"]
            self.assertEqual([choice["index"] for choice in choices], [0, 1])
            self.assertNotEqual(choices[0], choices[1] | {"index": 0})
        # The first choice is the text of the same row without n, the others are as before.
        again = self.run_job(daemon, [{**rows[0], "n": 2}], name="again")
        self.assertEqual(texts(again[0]), texts(plain)[:2])
        alone = self.run_job(daemon, [{**rows[0], "n": 1}], name="alone")
        self.assertEqual(texts(alone[0]), texts(plain)[0])

    def test_echo_gives_the_log_probabilities_of_transformers(self):
        golden = json.loads((ROOT / "tests/data/smollm2/logprobs.json").read_text())["cases"][::2]
        rows = []
        for case in golden:
            rows.append(completion(case["name"], prompt=case["prompt"], max_tokens=1, logprobs=1,
                                   echo=True, temperature=0, seed=1))  # as lm-eval asks
            rows.append(completion(case["name"] + " ends", prompt=case["prompt"], max_tokens=1,
                                   logprobs=1, echo=True, logit_bias={"2": 100}))
            rows.append({"id": "plain " + case["name"], "prompt": case["text"], "max_tokens": 0,
                         "prompt_logprobs": 2})
        results = self.run_job(self.start(), rows, "--compute-type", "f32")
        legacy = {row["custom_id"]: row["response"]["body"] for row in results
                  if "custom_id" in row}
        plain = {row["id"]: row for row in results if "id" in row and "custom_id" not in row}
        for case in golden:
            count = len(case["prompt"])
            body = legacy[case["name"]]
            choice = body["choices"][0]
            self.assertEqual(body["usage"]["prompt_tokens"], count)
            self.assertTrue(choice["text"].startswith(case["text"]))
            arrays = choice["logprobs"]
            self.assertEqual({len(array) for array in arrays.values()}, {count + 1})
            self.assertIsNone(arrays["token_logprobs"][0])
            self.assertIsNone(arrays["top_logprobs"][0])
            self.assert_near(arrays["token_logprobs"][1:count], case["prompt_logprobs"][1:])
            for i in range(1, count + 1):
                token, top = arrays["tokens"][i], arrays["top_logprobs"][i]
                self.assertEqual(top[token], arrays["token_logprobs"][i])
                self.assertGreaterEqual(max(top.values()), top[token])
                if not token.startswith("bytes:"):  # a part of a character
                    self.assertEqual(choice["text"][arrays["text_offset"][i]:][:len(token)], token)
            # The end token counts, or the last of the prompt would be taken for it.
            ended = legacy[case["name"] + " ends"]["choices"][0]
            self.assertEqual(ended["finish_reason"], "stop")
            self.assertEqual(ended["text"], case["text"])
            self.assertEqual(ended["logprobs"]["token_logprobs"][:count],
                             arrays["token_logprobs"][:count])
            self.assertEqual(len(ended["logprobs"]["token_logprobs"]), count + 1)
            self.assertEqual(ended["logprobs"]["text_offset"][count], len(case["text"]))
            scored = plain["plain " + case["name"]]
            self.assertEqual(scored["text"], "")
            self.assertEqual(scored["usage"]["completion_tokens"], 0)
            self.assertIsNone(scored["prompt_logprobs"][0]["logprob"])
            self.assertEqual([entry["token_id"] for entry in scored["prompt_logprobs"]],
                             case["prompt"])
            self.assertEqual([entry["logprob"] for entry in scored["prompt_logprobs"]],
                             arrays["token_logprobs"][:count])

    def test_choices_are_as_likely_as_their_texts(self):
        choices = [" London", " Paris", " the city of Paris"]
        rows = [{"id": "choices", "prompt": PARIS, "choices": choices, "logprobs": True,
                 "top_logprobs": 1},
                {"id": "space", "prompt": PARIS + " ", "choices": ["London", "Paris"]},
                {"id": "chat", "choices": ["Paris", "Potatoes"], "messages": [
                    {"role": "user", "content": "What is the capital of France?"}]},
                {"id": "bad", "prompt": PARIS, "choices": []}]
        rows += [{"id": text, "prompt": PARIS + text, "max_tokens": 0, "prompt_logprobs": 0}
                 for text in choices]
        results = {row["id"]: row for row in
                   self.run_job(self.start(), rows, "--compute-type", "f32", exit_code=3)}
        scored = results["choices"]
        self.assertEqual([choice["text"] for choice in scored["choices"]], choices)
        self.assertEqual([choice["tokens"] for choice in scored["choices"]], [1, 1, 4])
        self.assertEqual(scored["best"], 1)
        self.assertAlmostEqual(sum(choice["probability"] for choice in scored["choices"]), 1)
        self.assertEqual(scored["usage"]["prompt_tokens"], 5 + 6)
        self.assertEqual(scored["usage"]["completion_tokens"], 0)
        for choice in scored["choices"]:
            alone = results[choice["text"]]["prompt_logprobs"][5:]
            self.assertEqual([token["logprob"] for token in choice["logprobs"]],
                             [token["logprob"] for token in alone])
            self.assertAlmostEqual(choice["logprob"], sum(token["logprob"] for token in alone), 5)
        # The space melts into the word: the same tokens as without it.
        self.assertEqual([choice["logprob"] for choice in results["space"]["choices"]],
                         [choice["logprob"] for choice in scored["choices"][:2]])
        self.assertEqual(results["chat"]["best"], 0)
        self.assertEqual(results["bad"]["error"]["param"], "choices")

    def test_evaluate_finds_the_perplexity_of_transformers(self):
        cases = json.loads((ROOT / "tests/data/smollm2/logprobs.json").read_text())["cases"]
        golden = [case for case in cases if case["text"] == case["text"].strip()]
        self.assertGreaterEqual(len(golden), 2)
        daemon = self.start()
        first_words = [{"prompt": case["text"].split()[0], "max_tokens": 0, "prompt_logprobs": 0}
                       for case in golden]
        counts = {row["index"]: row["usage"]["prompt_tokens"]
                  for row in self.run_job(daemon, first_words, name="words")}
        logprobs = [value for i, case in enumerate(golden)
                    for value in case["prompt_logprobs"][counts[i]:]]
        data = write_rows(self.folder / "texts.jsonl", [{"text": case["text"]} for case in golden])
        evaluate = lambda *more: run_client("evaluate", "smollm2", "--data", data, "--json", *more,
                                            address=daemon.address)
        run = evaluate("--task", "perplexity", "--window", "1000", "--stride", "999",
                       "--compute-type", "bf16", "--against", "smollm2",
                       "--against-compute-type", "f32")
        self.assertEqual(run.returncode, 0, run.stderr)
        report = json.loads(run.stdout)
        self.assertEqual(report["against"]["tokens"], len(logprobs))
        expected = math.exp(-sum(logprobs) / len(logprobs))
        self.assertAlmostEqual(report["against"]["perplexity"] / expected, 1, 3)
        self.assertAlmostEqual(report["model"]["perplexity"] / expected, 1, 1)
        self.assertEqual(report["model"]["numeric_mode"], "bf16/device")
        self.assertTrue(0 < report["kl"] < 0.01, report)
        self.assertTrue(0.9 < report["top1_agreement"] < 1, report)
        packed = json.loads(evaluate("--task", "perplexity", "--window", "1000", "--stride", "999",
                                     "--kv-type", "int4", "--against", "smollm2",
                                     "--against-kv-type", "none").stdout)
        self.assertEqual(packed["model"]["numeric_mode"], "bf16/kv int4/device")
        self.assertEqual(packed["against"]["numeric_mode"], "bf16/device")
        self.assertEqual(packed["against"]["perplexity"], report["model"]["perplexity"])
        self.assertNotEqual(packed["model"]["perplexity"], report["model"]["perplexity"])
        self.assertTrue(0 < packed["kl"] < 1, packed)
        words = evaluate("--task", "next-word", "--compute-type", "f32")
        self.assertEqual(json.loads(words.stdout)["words"], len(golden))
        narrow = run_client("evaluate", tiny_pack("llama_tied"), "--task", "perplexity", "--data",
                            data, address=daemon.address)
        self.assertEqual(narrow.returncode, 1)
        self.assertIn("--private", narrow.stderr)

    def assert_near(self, values, expected):
        self.assertEqual(len(values), len(expected))
        self.assertLess(max(abs(a - b) for a, b in zip(values, expected)), TOLERANCE)

    def test_rows_that_were_interrupted_say_the_same(self):
        rows = [{"id": str(i), "prompt": f"{i}. A list of fruits:", "max_tokens": 32, "seed": i,
                 "temperature": 0.9, "repetition_penalty": 1.2, "presence_penalty": 0.5,
                 "bad_words": ["apple"], "min_tokens": 8, "n": 1 + i % 3,
                 "echo": i % 2 == 0, "logprobs": i % 2 == 0} for i in range(16)]
        daemon = self.start("--max-block-requests", "6")
        expected = {row["id"]: row for row in self.run_job(daemon, rows)}
        again = self.run_job_through_a_drain(daemon, rows, "--run-key", "again")
        self.assertEqual({row["id"]: row for row in again}, expected)


if __name__ == "__main__":
    unittest.main(verbosity=2)
