#!/usr/bin/env python3
"""Tokens, roles and tenants with the real executables: from make-token to exit codes, and what SIGHUP
takes over."""

import os
import signal
import stat
import subprocess
import unittest

from e2e_lib import (FAKE_NIGHTSHIFTD, NIGHTSHIFT, EndToEndTest, client_environment, run_client,
                     write_rows)

ROWS = [{"id": str(i), "prompt": f"document {i}", "max_tokens": 2} for i in range(4)]
NOT_FOUND, NOT_ALLOWED, CONFIG = 6, 7, 78


class AccessTest(EndToEndTest):
    def setUp(self):
        super().setUp()
        self.access = self.folder / "access"
        self.access.touch(0o640)
        self.reader = self.make_token("acme", "reader")
        self.submitter = self.make_token("acme", "submitter")
        self.stranger = self.make_token("bolt", "admin")
        self.server = self.daemon("--access-file", self.access,
                                  executable=FAKE_NIGHTSHIFTD)

    def make_token(self, tenant, role):
        """Makes a token as the manual says; returns its file."""
        made = run_client("make-token", "--tenant", tenant, "--role", role)
        self.assertEqual(made.returncode, 0, made.stderr)
        with open(self.access, "a", encoding="utf-8") as access:
            access.write(made.stderr)
        path = self.folder / f"{tenant}-{role}.token"
        path.write_text(made.stdout)
        path.chmod(0o600)
        return path

    def client(self, token, *arguments):
        environment = client_environment(self.server.address)
        if token:
            environment["NIGHTSHIFT_TOKEN_FILE"] = str(token)
        return subprocess.run([NIGHTSHIFT, *map(str, arguments)], env=environment,
                              stdin=subprocess.DEVNULL, capture_output=True, text=True,
                              timeout=60, check=False)

    def assert_ends(self, done, code, *said):
        self.assertEqual(done.returncode, code, done.stderr + self.server.tail())
        for words in said:
            self.assertIn(words, done.stderr)

    def reload(self, text, logged):
        self.access.write_text(text)
        os.kill(self.server.pid, signal.SIGHUP)
        self.server.wait_for_log(logged)

    def test_a_token_lets_its_role_do_what_it_may_with_its_tenants_jobs(self):
        self.server.start()
        source = write_rows(self.folder / "rows.jsonl", ROWS)
        run = ("run", source, "--output", self.folder / "out.jsonl")
        self.assert_ends(self.client(None, *run), NOT_ALLOWED, "--token-file")
        self.server.wait_for_log("calls_refused count=1")
        self.assert_ends(self.client(self.reader, *run), NOT_ALLOWED, "submitter and above",
                         "ROLE_TOO_LOW")
        self.assert_ends(self.client(self.submitter, "submit", source, "--job-id", "nightly"), 0)
        self.assert_ends(self.client(self.reader, "wait", "nightly"), 0)
        self.assertIn("nightly", self.client(self.reader, "list").stdout)
        self.assertNotIn("nightly", self.client(self.stranger, "list").stdout)
        self.assert_ends(self.client(self.stranger, "status", "nightly"), NOT_FOUND,
                         "jobs/nightly is not known")
        self.assert_ends(self.client(self.submitter, "server", "drain"), NOT_ALLOWED)
        self.assert_ends(self.client(self.stranger, "server", "drain", "--undo"), 0)
        self.assert_ends(self.client(None, "health"), 0)

    def test_sighup_takes_a_good_file_over_and_leaves_a_bad_one(self):
        self.server.start()
        self.assert_ends(self.client(self.reader, "list"), 0)
        lines = self.access.read_text().splitlines()
        self.reload("\n".join([*lines[1:], "nonsense"]) + "\n", "access_file_refused")
        self.assertIn(f"{self.access} line {len(lines)}", self.server.tail())
        self.assert_ends(self.client(self.reader, "list"), 0)
        self.reload("\n".join(lines[1:]) + "\n", "reloaded")
        self.assert_ends(self.client(self.reader, "list"), NOT_ALLOWED, "TOKEN_UNKNOWN")
        self.assert_ends(self.client(self.submitter, "list"), 0)
        self.assertEqual(self.server.drain(), 0)

    def test_a_file_that_others_can_read_is_refused_on_both_sides(self):
        self.access.chmod(0o644)
        self.server.launch()
        self.assertEqual(self.server.wait(), CONFIG)
        self.assertIn(f"chmod 640 {self.access}", self.server.tail())
        self.access.chmod(0o640)
        self.server.start()
        self.reader.chmod(stat.S_IRUSR | stat.S_IROTH)
        self.assert_ends(self.client(self.reader, "list"), 1, f"chmod 600 {self.reader}")

    def test_no_secret_is_logged(self):
        self.server.start()
        for token in (self.reader, self.submitter, self.stranger):
            self.client(token, "server", "drain", "--undo")
        digests = [line.split()[0] for line in self.access.read_text().splitlines()]
        tokens = [path.read_text().strip() for path in (self.reader, self.submitter, self.stranger)]
        log = self.server.log_of_this_start()
        for secret in digests + tokens:
            self.assertNotIn(secret, log)


if __name__ == "__main__":
    unittest.main(verbosity=2)
