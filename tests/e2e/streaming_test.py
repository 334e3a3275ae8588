#!/usr/bin/env python3
"""A model larger than its memory: the same texts as with all of it in memory, under the budget."""

import unittest

from e2e_lib import MIB, EndToEndTest, read_rows, run_client, smollm2_pack, write_rows

BUDGET_MIB = 160
OVERHEAD_MIB = 100


class StreamingTest(EndToEndTest):
    def texts(self, name, *options):
        daemon = self.daemon("--model", smollm2_pack(), *options, name=name).start()
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


if __name__ == "__main__":
    unittest.main(verbosity=2)
