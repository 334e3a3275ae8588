#!/usr/bin/env python3
"""A bad row never harms another: each gets its own code, all others finish."""

import unittest

from e2e_lib import EndToEndTest, run_client, smollm2_pack, write_rows

FINISHED_WITH_FAILED_REQUESTS = 3


def chat(custom_id, **body):
    body = {"model": "smollm2", "max_tokens": 2,
            "messages": [{"role": "user", "content": "Hello"}]} | body
    return {"custom_id": custom_id, "method": "POST", "url": "/v1/chat/completions", "body": body}


# custom_id -> (row, code its error must have).
BAD_ROWS = {
    "too-long": (chat("too-long", messages=[{"role": "user", "content": "word " * 9000}]),
                 "context_length_exceeded"),
    "tools": (chat("tools", tools=[{"type": "function", "function": {"name": "f"}}]),
              "unsupported_parameter"),
    "type": (chat("type", temperature="hot"), "invalid_type"),
    "range": (chat("range", temperature=9), "invalid_value"),
    "best-of": (chat("best-of", best_of=2), "unsupported_parameter"),
    "greedy-n": (chat("greedy-n", n=2), "invalid_value"),
    "many-n": (chat("many-n", n=1000, temperature=1), "invalid_value"),
    "bias": (chat("bias", logit_bias={"49152": 1}), "invalid_value"),
    "bias-key": (chat("bias-key", logit_bias={"Paris": 1}), "invalid_value"),
    "penalty": (chat("penalty", repetition_penalty=-1), "invalid_value"),
    "bad-words": (chat("bad-words", bad_words=["x"] * 257), "invalid_value"),
    "least": (chat("least", min_tokens=3), "invalid_value"),
    "echo": (chat("echo", echo=True), "unsupported_parameter"),
    "nothing": (chat("nothing", max_tokens=0), "invalid_value"),
    "stream": (chat("stream", stream=True), "unsupported_parameter"),
    "empty": (chat("empty", messages=[]), "invalid_value"),
    "role": (chat("role", messages=[{"role": "wizard", "content": "Hello"}]), "invalid_value"),
    "url": (chat("url") | {"url": "/v1/embeddings"}, "url_mismatch"),
    "method": (chat("method") | {"method": "GET"}, "invalid_value"),
    "model": (chat("model", model="another"), "model_mismatch"),
    "too-much": (chat("too-much", max_tokens=100000), "context_length_exceeded"),
    "arguments": (chat("arguments", chat_template_kwargs={"messages": []}), "invalid_value"),
    "neither": ({"custom_id": "neither", "method": "POST", "url": "/v1/completions",
                 "body": {"model": "smollm2"}}, "missing_required_parameter"),
}
# Lines without a readable custom_id: only their number tells who they are.
BROKEN_LINES = [b'{"custom_id": "half", "method": ', b'\xff\xfe{"custom_id": "utf16"}',
                b'{"custom_id": "latin", "body": {"messages": "caf\xe9"}}', b"[1, 2]"]


# Does what the first message asks for.
MISBEHAVING_TEMPLATE = """{% macro again() %}{{ again() }}{% endmacro %}
{% set wish = messages[0].content %}
{% if wish == 'raise' %}{{ raise_exception('no such turn') }}{% endif %}
{% if wish == 'type' %}{{ wish + 1 }}{% endif %}
{% if wish == 'loop' %}{% for i in range(99999) %}{% for j in range(99999) %}{% endfor %}{% endfor %}{% endif %}
{% if wish == 'product' %}{{ 'x' * 1000000000 }}{% endif %}
{% if wish == 'output' %}{% for i in range(99999) %}{{ 'x' * 1000 }}{% endfor %}{% endif %}
{% if wish == 'recursion' %}{{ again() }}{% endif %}
{{ mood | default('plain') }}: {{ wish }}
"""
# What the error of each must say.
TEMPLATE_ERRORS = {"raise": "no such turn", "type": "unsupported operand", "loop": "steps",
                   "product": "bytes of text", "output": "bytes", "recursion": "deep"}


class BadRowsTest(EndToEndTest):
    def error_code(self, row):
        self.assertEqual(row["response"]["status_code"], 400, row)
        return row["response"]["body"]["error"]["code"]

    def test_each_bad_row_has_its_code_and_all_others_finish(self):
        rows = []
        for i, (bad, _) in enumerate(BAD_ROWS.values()):
            rows += [chat(f"good-{i}"), bad]
        rows += BROKEN_LINES + [chat("good-0"), chat("good-last")]  # good-0 again: a duplicate
        daemon = self.daemon("--model", smollm2_pack()).start()
        results = self.run_job(daemon, rows, exit_code=FINISHED_WITH_FAILED_REQUESTS)

        self.assertEqual(len(results), len(rows))
        good = {f"good-{i}" for i in range(len(BAD_ROWS))} | {"good-last"}
        failed = [row for row in results if row["response"]["status_code"] != 200]
        succeeded = [row["custom_id"] for row in results if row not in failed]
        self.assertEqual(sorted(succeeded), sorted(good))
        codes = {row["custom_id"]: self.error_code(row) for row in failed}
        expected = {custom_id: code for custom_id, (_, code) in BAD_ROWS.items()}
        expected |= {"good-0": "duplicate_custom_id", "": "invalid_json_line"}
        self.assertEqual(codes, expected)
        self.assertEqual(len(failed), len(BAD_ROWS) + len(BROKEN_LINES) + 1)

    def test_a_template_that_raises_runs_long_or_grows_fails_its_row_alone(self):
        template = self.folder / "template.jinja"
        template.write_text(MISBEHAVING_TEMPLATE)
        pack = smollm2_pack("smollm2-misbehaving", "--chat-template", template)
        rows = []
        for wish in TEMPLATE_ERRORS:
            message = {"messages": [{"role": "user", "content": wish}], "model": pack.name}
            rows += [chat(f"good-{wish}", model=pack.name), chat(wish, **message)]
        daemon = self.daemon("--model", pack).start()
        results = self.run_job(daemon, rows, exit_code=FINISHED_WITH_FAILED_REQUESTS)
        self.assertEqual(len(results), len(rows))
        for row in results:
            wish = row["custom_id"]
            if wish.startswith("good-"):
                self.assertEqual(row["response"]["status_code"], 200, row)
                continue
            self.assertEqual(self.error_code(row), "chat_template_error", row)
            self.assertIn(TEMPLATE_ERRORS[wish], row["response"]["body"]["error"]["message"])

    def test_template_arguments_of_the_job_and_of_a_row_reach_the_template(self):
        template = self.folder / "template.jinja"
        template.write_text(MISBEHAVING_TEMPLATE)
        pack = smollm2_pack("smollm2-misbehaving", "--chat-template", template)
        daemon = self.daemon("--model", pack).start()
        rows = [chat("job", model=pack.name),
                chat("row", model=pack.name, chat_template_kwargs={"mood": "a b c d e f"})]
        results = self.run_job(daemon, rows, "--chat-template-kwargs", '{"mood": "a b c"}')
        tokens = {row["custom_id"]: row["response"]["body"]["usage"]["prompt_tokens"]
                  for row in results}
        self.assertEqual(tokens["row"], tokens["job"] + 3, results)

    def test_a_bad_file_is_refused_when_asked(self):
        daemon = self.daemon("--model", smollm2_pack()).start()
        source = write_rows(self.folder / "in.jsonl", [chat("good"), chat("bad", max_tokens="x")])
        done = run_client("run", source, "--output", self.folder / "out.jsonl",
                          "--on-invalid-line", "reject", address=daemon.address)
        self.assertEqual(done.returncode, 9, done.stderr)
        self.assertFalse((self.folder / "out.jsonl").exists())
        self.assertIn("2", done.stderr)


if __name__ == "__main__":
    unittest.main(verbosity=2)
