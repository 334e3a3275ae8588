#!/usr/bin/env python3
"""A model larger than its memory: the same texts as with all of it in memory, under the budget, and
what the daemon tells of how its sweeps spent their time."""

import json
import unittest

from e2e_lib import MIB, EndToEndTest, read_rows, run_client, smollm2_bf16_pack, write_rows

BUDGET_MIB = 160
OVERHEAD_MIB = 100


class StreamingTest(EndToEndTest):
    def texts(self, name, *options):
        daemon = self.daemon("--model", smollm2_bf16_pack(), *options, name=name).start()
        rows = write_rows(self.folder / "rows.jsonl", [
            {"id": str(i), "prompt": "One, two, three, " * (i + 1), "max_tokens": 6}
            for i in range(12)])
        output = self.folder / f"{name}.results.jsonl"
        done = run_client("run", rows, "-o", output, address=daemon.address)
        self.assertEqual(done.returncode, 0, done.stderr)
        info = run_client("server", "info", address=daemon.address).stdout
        peak = daemon.memory_bytes("VmHWM") / MIB
        self.assertEqual(daemon.drain(), 0)
        return {row["id"]: row["text"] for row in read_rows(output)}, info, peak

    def test_streamed_weights_give_the_same_texts_under_the_budget(self):
        expected, info, _ = self.texts("resident")
        self.assertNotIn("from disk", info)
        streamed, info, peak = self.texts(
            "streamed", "--memory-budget", f"{BUDGET_MIB}MiB", "--max-sweep-tokens", "512")
        self.assertIn("MiB a sweep from disk", info)
        self.assertEqual(streamed, expected)
        self.assertLess(peak, BUDGET_MIB + OVERHEAD_MIB)
        print(f"peak memory {peak:.0f} MiB with a budget of {BUDGET_MIB} MiB", flush=True)

    def start_streaming(self):
        return self.daemon("--model", smollm2_bf16_pack(), "--memory-budget", f"{BUDGET_MIB}MiB",
                           "--max-sweep-tokens", "512").start()

    def test_the_timeline_is_a_trace_of_the_lanes_in_use(self):
        daemon = self.start_streaming()
        trace = self.folder / "trace.json"
        early = run_client("server", "timeline", trace, address=daemon.address)
        self.assertEqual(early.returncode, 1)
        self.assertIn("submit a job", early.stderr)
        self.assertFalse(trace.exists())
        self.run_job(daemon, [{"id": "a", "prompt": "One, two,", "max_tokens": 4}])
        done = run_client("server", "timeline", trace, address=daemon.address)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertFalse(trace.with_name("trace.json.part").exists())
        events = json.loads(trace.read_text(encoding="utf-8"))["traceEvents"]
        lanes = {event["tid"]: event["args"]["name"] for event in events
                 if event["name"] == "thread_name"}
        steps = [event for event in events if event["ph"] == "X"]
        self.assertEqual({lanes[step["tid"]] for step in steps}, {"read", "compute"})
        for step in steps:
            self.assertGreaterEqual(step["dur"], 0)
            self.assertGreaterEqual(step["args"]["issued_us_before"], 0)
        self.assertGreater(sum(step["args"]["bytes"] for step in steps), MIB)
        again = run_client("server", "timeline", trace, address=daemon.address)
        self.assertNotEqual(again.returncode, 0)
        self.assertIn("it exists", again.stderr)
        self.assertEqual(daemon.drain(), 0)

    def test_a_job_tells_what_it_waited_for_also_after_a_restart(self):
        daemon = self.start_streaming()
        self.run_job(daemon, [{"id": "a", "prompt": "One, two,", "max_tokens": 4}], "--job-id", "told")
        for _ in range(2):
            status = run_client("status", "told", address=daemon.address).stdout
            line = next(line for line in status.splitlines() if line.startswith("bottleneck"))
            self.assertRegex(line, r"^bottleneck  (read|compute) \d+ % \(.*(read|compute) \d+ %")
            told = json.loads(run_client("status", "told", "--json", address=daemon.address).stdout)
            report = told["report"]
            self.assertEqual(report["sweeps"], 4)
            self.assertGreater(report["seconds"], 0)
            lanes = {lane["name"]: lane for lane in report["lanes"]}
            self.assertEqual(set(lanes), {"read", "compute"})
            self.assertGreater(lanes["read"]["bytes"], 4 * MIB)
            for lane in lanes.values():
                self.assertLessEqual(lane["busy_share"], 1)
            self.assertEqual(daemon.drain(), 0)
            daemon.start()
        self.assertEqual(daemon.log.read_text().count("job_report job=told sweeps=4 "), 1)


if __name__ == "__main__":
    unittest.main(verbosity=2)
