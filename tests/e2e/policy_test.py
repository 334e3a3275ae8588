#!/usr/bin/env python3
"""A daemon that plans: the plan is shown, changes when the queue grows, is held against what came of
it, and changes no text."""

import json
import unittest

from e2e_lib import ROOT, EndToEndTest, read_rows, run_client, smollm2_pack, write_rows

PROFILE = ROOT / "tests" / "data" / "hardware" / "two_cores.json"


def rows(count, max_tokens):
    return [{"id": str(i), "prompt": f"Item {i}: one, two, three, " * (1 + i % 3),
             "max_tokens": max_tokens} for i in range(count)]


class PolicyTest(EndToEndTest):
    def start(self, name, *options):
        # Weights do not fit: how many of them are read again in each sweep is the plan's to say.
        return self.daemon("--model", smollm2_pack(), "--memory-budget", "120MiB", *options,
                           name=name).start()

    def ask(self, daemon, *arguments):
        done = run_client(*arguments, address=daemon.address)
        self.assertEqual(done.returncode, 0, done.stderr)
        return done.stdout

    def submit(self, daemon, count, max_tokens, name):
        source = write_rows(self.folder / f"{name}.jsonl", rows(count, max_tokens))
        return self.ask(daemon, "submit", source).strip()

    def results(self, daemon, job):
        output = self.folder / f"{job.replace('/', '-')}.{daemon.folder.name}.jsonl"
        self.ask(daemon, "results", job, "--follow", "-o", output)
        return {row["id"]: row["text"] for row in read_rows(output)}

    def test_a_planned_job_gives_the_same_texts_and_tells_how_the_plan_came_true(self):
        texts = {}
        for name, options in (("given", ("--plan", "off")), ("planned", ("--hardware", PROFILE))):
            daemon = self.start(name, *options)
            first = self.submit(daemon, 3, 64, "few")
            self.ask_until_running(daemon, first)
            policy = json.loads(self.ask(daemon, "policy", "show", "--json"))
            second = self.submit(daemon, 40, 6, "many")
            texts[name] = [self.results(daemon, job) for job in (first, second)]
            job = json.loads(self.ask(daemon, "status", second, "--json"))
            log = daemon.log.read_text()
            if name == "planned":
                self.check_plan(daemon, policy, job, log)
                refused = run_client("policy", "show", "jobs/none", address=daemon.address)
                self.assertEqual(refused.returncode, 6, refused.stderr)
            else:
                self.assertFalse(policy["planned"])
                self.assertIn("--plan off", policy["reason"])
                self.assertIsNone(job["report"]["prediction"])
            self.assertEqual(daemon.drain(), 0)
        self.assertEqual(texts["given"], texts["planned"])

    def ask_until_running(self, daemon, job):
        """Returns once the job's model is loaded."""
        while json.loads(self.ask(daemon, "server", "info", "--json"))["loaded_model"] == "":
            self.assertNotIn(json.loads(self.ask(daemon, "status", job, "--json"))["state"],
                             ("failed", "succeeded"))

    def check_plan(self, daemon, policy, job, log):
        self.assertTrue(policy["planned"], policy)
        self.assertEqual(policy["hardware"]["name"], "two cores")
        plan = policy["plan"]
        self.assertEqual(plan["requests"], 3)
        self.assertGreater(plan["tokens_per_s"], 0)
        self.assertIn("waits", plan["binding"])
        self.assertIn("plan_changed", log)
        prediction = job["report"]["prediction"]
        self.assertGreater(prediction["predicted_us"], 0)
        self.assertGreater(prediction["observed_us"], 0)
        compute = next(lane for lane in prediction["lanes"] if lane["name"] == "compute")
        self.assertGreater(compute["predicted_us"], 0)
        self.assertGreater(compute["observed_us"], 0)
        self.assertEqual({pool["name"] for pool in prediction["pools"]}, {"host", "kv pages"})
        self.assertRegex(log, r"job_report job=\S+ .*predicted_us=\d+ compared_us=\d+")
        text = self.ask(daemon, "status", job["name"])
        self.assertIn("predicted", text)
        planning = json.loads(self.ask(daemon, "server", "info", "--json"))["planning"]
        self.assertGreaterEqual(planning["replans"], 1)
        explained = json.loads(self.ask(daemon, "policy", "explain", "smollm2", "--json",
                                        "--requests", "500", "--prompt-tokens", "50",
                                        "--output-tokens", "20"))
        self.assertEqual(explained["plan"]["requests"], 500)
        self.assertTrue(explained["alternatives"])
        print(f"predicted/observed {prediction['predicted_us'] / prediction['observed_us']:.2f}",
              flush=True)


if __name__ == "__main__":
    unittest.main()
