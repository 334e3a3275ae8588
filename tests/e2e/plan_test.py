#!/usr/bin/env python3
"""`plan`: a job is planned for a machine that is not here, from its name or its file."""

import json
import unittest
import xml.dom.minidom

from e2e_lib import EndToEndTest, run_client

JOB = ("--requests", "1000", "--prompt-tokens", "512", "--output-tokens", "32")


class PlanTest(EndToEndTest):
    def plan(self, *options):
        done = run_client("plan", *options)
        self.assertEqual(done.returncode, 0, done.stderr)
        return done.stdout

    def test_a_plan_tells_people_and_programs_the_same(self):
        text = self.plan("opt-30b", "--hardware", "t4", *JOB)
        for word in ("block ", "weights ", "tokens/s", "waits for", "rejected "):
            self.assertIn(word, text)
        first = self.plan("opt-30b", "--hardware", "t4", "--json", *JOB)
        self.assertEqual(first, self.plan("opt-30b", "--hardware", "t4", "--json", *JOB))
        plan = json.loads(first)["plan"]
        self.assertIn(f"{plan['choice']['block_requests']} requests in batches of "
                      f"{plan['choice']['batch_requests']};", text)

    def test_each_cost_model_plans(self):
        for form in ("nightshift", "paper", "flexgen"):
            text = self.plan("opt-30b", "--hardware", "t4", "--model-form", form, *JOB)
            self.assertIn(f"form       {form}", text)

    def test_a_frontier_ascends_and_is_plotted(self):
        plot = self.folder / "frontier.svg"
        text = self.plan("opt-6.7b", "--hardware", "t4", "--frontier", "--svg", plot, "--json", *JOB)
        points = json.loads(text)["frontier"]["points"]
        rates = [point["tokens_per_s"] for point in points]
        self.assertEqual(rates, sorted(rates))
        circles = xml.dom.minidom.parse(str(plot)).getElementsByTagName("circle")
        self.assertEqual(len(circles), len(points))

    def test_refusals_say_what_is_wrong(self):
        for options, word in ((("opt-31b", "--hardware", "t4"), "opt-31b"),
                              (("opt-30b", "--hardware", "t5"), "t5"),
                              (("opt-30b", "--hardware", "t4", "--deadline", "soon"), "soon"),
                              (("opt-30b", "--hardware", "t4", "--deadline", "1s"), "at least")):
            done = run_client("plan", *options)
            self.assertNotEqual(done.returncode, 0, options)
            self.assertIn(word, done.stderr)


if __name__ == "__main__":
    unittest.main()
