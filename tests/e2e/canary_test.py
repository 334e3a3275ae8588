#!/usr/bin/env python3
"""What documents say and what models answer is in the store and in results, and nowhere else: a word of
theirs is looked for in all that the daemon says or leaves."""

import re
import unittest
import urllib.error
import urllib.request

from e2e_lib import LIMIT_S, EndToEndTest, read_rows, run_client, smollm2_pack, write_rows

CANARY = "Quixotrel"
FAILED_REQUESTS, INPUT_INVALID = 3, 9
# Where it belongs: of the state folder.
STORE = re.compile(r"^(store\.sqlite.*|(jobs|uploads|prompts)/.*)$")
TEMPLATE = "{{ raise_exception('no template for ' + messages[0]['content']) }}"


def chat(text):
    return {"role": "user", "content": text}


ROWS = [
    {"id": "good", "messages": [chat(f"Repeat this word: {CANARY}")], "max_tokens": 12,
     "temperature": 0},
    {"id": "prompt", "prompt": f"{CANARY} {CANARY} {CANARY}", "max_tokens": 8, "temperature": 0},
    {"id": "long", "prompt": f"{CANARY} " * 20_000},
    {"id": "unknown", "prompt": CANARY, "tools": [{"name": CANARY}]},
    {"id": "type", "prompt": {"text": CANARY}},
    {"id": "kwargs", "messages": [chat(CANARY)], "chat_template_kwargs": CANARY},
    b'{"id": "cut", "prompt": "' + CANARY.encode(),
    b'{"id": "bytes", "prompt": "' + CANARY.encode() + b'\xff"}',
    CANARY.encode(),
]
# Values of other fields are told to whoever sent them, and to nobody else.
OPTION_ROWS = [
    {"id": "role", "messages": [{"role": CANARY, "content": CANARY}], "max_tokens": 1},
    {"id": "stop", "prompt": CANARY, "stop": [CANARY] * 100},
    {"id": "bias", "prompt": CANARY, "logit_bias": {CANARY: 1}},
]


class CanaryTest(EndToEndTest):
    def setUp(self):
        super().setUp()
        template = self.folder / "template"
        template.write_text(TEMPLATE)
        self.server = self.daemon("--model", smollm2_pack(), "--model",
                                  smollm2_pack("smollm2-raises", "--chat-template", template),
                                  "--http-listen", "127.0.0.1:0")
        # What gRPC would trace is all that goes over the wire.
        self.server.launch({"GRPC_TRACE": "all", "GRPC_VERBOSITY": "DEBUG"}.items())
        self.server.wait_ready()
        self.said = []

    def client(self, *arguments, exit_code=0):
        done = run_client(*arguments, address=self.server.address)
        self.assertEqual(done.returncode, exit_code, done.stderr + self.server.tail())
        self.said.append((arguments, done.stdout + done.stderr))
        return done

    def run_rows(self, rows, model, name):
        source = write_rows(self.folder / f"{name}.jsonl", rows)
        target = self.folder / f"{name}.results.jsonl"
        # Not to be looked into: it tells whose results these are the first error among them.
        done = run_client("run", source, "--output", target, "--model", model, "--run-key", name,
                          address=self.server.address)
        self.assertEqual(done.returncode, FAILED_REQUESTS, done.stderr + self.server.tail())
        return {row["id"]: row for row in read_rows(target) if "id" in row}

    def read_pages(self):
        url = re.search(r"listening address=(http://\S+)", self.server.log_of_this_start())[1]
        for page in "metrics", "statusz", "readyz", "livez":
            try:
                with urllib.request.urlopen(f"{url}/{page}", timeout=LIMIT_S) as answer:
                    text = answer.read().decode()
            except urllib.error.HTTPError as error:  # not ready: with reasons
                text = error.read().decode()
            self.assertTrue(text, page)
            self.said.append((page, text))

    def assert_nothing_is_told(self):
        for what, text in [*self.said, ("log", self.server.log.read_text(errors="replace"))]:
            with self.subTest(what):
                self.assertNotIn(CANARY, text)
        state = self.server.folder / "state"
        for path in state.rglob("*"):
            if path.is_file() and not STORE.match(str(path.relative_to(state))):
                self.assertNotIn(CANARY.encode(), path.read_bytes(), path)

    def test_a_word_of_prompts_and_answers_is_in_store_and_results_only(self):
        results = self.run_rows(ROWS, "smollm2", "job")
        self.assertIn(CANARY, results["good"]["text"])
        self.assertIn("error", results["unknown"])
        self.run_rows(OPTION_ROWS, "smollm2", "options")
        self.client("server", "timeline", "-")  # of the model that is loaded
        self.read_pages()
        raised = self.run_rows([ROWS[0]], "smollm2-raises", "raising")
        self.assertIn("error", raised["good"])
        source = self.folder / "job.jsonl"
        self.client("submit", source, "--model", "smollm2", "--on-invalid-line", "reject",
                    "--run-key", "reject", exit_code=INPUT_INVALID)
        for command in (("list", "--json"), ("models", "--json"), ("server", "info", "--json"),
                        ("policy", "explain", "--json"), ("health", "--json")):
            self.client(*command)
        for job in re.findall(r'"name":\s*"(jobs/[^"]+)"', self.client("list", "--json").stdout):
            self.client("status", job, "--json", exit_code=0)
        self.client("pause", self.client("submit", source, "--model", "smollm2", "--run-key", "open",
                                         "--not-before", "2099-01-01T00:00:00Z").stdout.strip())
        self.read_pages()  # with a job that is open, and the last warnings
        self.assert_nothing_is_told()
        for pid in (self.server.pid, self.server.engine_pid()):
            with open(f"/proc/{pid}/limits", encoding="utf-8") as limits:
                self.assertRegex(limits.read(), r"Max core file size +0 +0 ")
        self.assertEqual(self.server.drain(), 0)
        self.assert_nothing_is_told()


if __name__ == "__main__":
    unittest.main(verbosity=2)
