#!/usr/bin/python3
"""The Python client against a daemon with a fake engine, beside the command line.

Runs with Debian's Python, whose packages deploy/install-dependencies installs.
"""

import json
import os
import pathlib
import random
import secrets
import subprocess
import sys
import unittest
from unittest import mock

from e2e_lib import (BUILD, FAKE_NIGHTSHIFTD, LIMIT_S, MIB, EndToEndTest, read_rows, run_client,
                     write_rows)
from tls_test import CLIENT_NAME, SERVER_NAMES, Authority

PACKAGE = BUILD / "client" / "python"
PYTHON_PATH = [str(PACKAGE), str(PACKAGE / "for_tests")]
sys.path[:0] = PYTHON_PATH

import grpc  # noqa: E402
import nightshift  # noqa: E402

PROGRAM = pathlib.Path(__file__).with_name("python_program.py")


def make_rows(count):
    return [{"id": f"row-{i}", "prompt": f"row {i}", "max_tokens": 1 + i % 40, "seed": i}
            for i in range(count)]


class PythonTest(EndToEndTest):
    def start(self):
        self.server = self.daemon(executable=FAKE_NIGHTSHIFTD).start()
        self.client = nightshift.Client(self.server.address)
        self.addCleanup(self.client.close)
        return self.client

    def nightshift(self, *arguments):
        done = run_client(*arguments, address=self.server.address)
        self.assertEqual(done.returncode, 0, done.stderr + self.server.tail())
        return done.stdout

    def texts_by_run(self, rows):
        """What the command line gets for these rows, in a job of its own."""
        results = self.run_job(self.server, rows, "--run-key", "by the command line", name="cli")
        return {row["id"]: row["text"] for row in results}


class SubmitTest(PythonTest):
    def test_rows_and_messages_get_the_command_lines_results(self):
        client = self.start()
        rows = make_rows(100)
        expected = self.texts_by_run(rows)
        job = client.submit(row for row in rows)
        self.assertEqual({result.custom_id: result.completion.text.decode()
                          for result in client.results(job.name)}, expected)
        requests = [nightshift.InferenceRequest(
            custom_id=row["id"], prompt=row["prompt"].encode(),
            sampling={"max_output_tokens": row["max_tokens"], "seed": row["seed"]})
                    for row in rows]
        job = client.submit(requests)
        self.assertEqual({result.custom_id: result.completion.text.decode()
                          for result in client.results(job.name)}, expected)

    def test_the_same_requests_are_the_same_job(self):
        client = self.start()
        job = client.submit(make_rows(3))
        self.assertEqual(client.submit(make_rows(3)).name, job.name)
        self.assertNotEqual(client.submit(make_rows(3), run_key="another").name, job.name)
        spec = nightshift.JobSpec(labels={"team": "a"})
        self.assertNotEqual(client.submit(make_rows(3), spec).name, job.name)
        own = "c0ffee00-0000-4000-8000-000000000001"
        job = client.submit(make_rows(4), request_id=own)
        self.assertEqual(client.submit(make_rows(4), request_id=own).name, job.name)
        with self.assertRaises(grpc.RpcError) as caught:
            client.submit(make_rows(5), request_id=own)
        self.assertEqual(caught.exception.code(), grpc.StatusCode.ALREADY_EXISTS)
        self.assertIn(own, caught.exception.details())

    def test_what_is_no_request_is_refused_by_name(self):
        client = self.start()
        with self.assertRaisesRegex(TypeError, "request 1 is int, must be a mapping"):
            client.submit([{"prompt": "x"}, 7])
        with self.assertRaisesRegex(TypeError, "not both"):
            client.submit([{"prompt": "x"}, nightshift.InferenceRequest()])
        with self.assertRaises(grpc.RpcError) as caught:
            client.job("none")
        self.assertEqual(caught.exception.code(), grpc.StatusCode.NOT_FOUND)
        self.assertIn("jobs/none", caught.exception.details())

    def test_a_bad_row_is_an_error_of_its_own(self):
        client = self.start()
        job = client.submit([{"id": "good", "prompt": "x", "max_tokens": 2},
                             {"id": "bad", "prompt": "x", "max_tokens": "many"}])
        results = {result.custom_id: result for result in client.results(job.name)}
        self.assertFalse(results["good"].HasField("error"))
        self.assertIn("max_tokens", results["bad"].error.message)

    def test_a_certificate_needs_its_key(self):
        with self.assertRaisesRegex(ValueError, "certificate and key go together"):
            nightshift.Client("127.0.0.1:1", certificate=b"x")


class AccessTest(PythonTest):
    def test_a_token_says_who_calls(self):
        made = run_client("make-token", "--tenant", "acme", "--role", "submitter")
        access = self.folder / "access"
        access.touch(0o640)
        access.write_text(made.stderr)
        server = self.daemon("--access-file", access, executable=FAKE_NIGHTSHIFTD).start()
        with nightshift.Client(server.address) as client:
            with self.assertRaises(grpc.RpcError) as caught:
                client.submit(make_rows(2))
            self.assertEqual(caught.exception.code(), grpc.StatusCode.UNAUTHENTICATED)
        with nightshift.Client(server.address, token=made.stdout) as client:
            job = client.submit(make_rows(2))
            self.assertEqual(len(list(client.results(job.name))), 2)
            self.assertEqual(client.wait(job.name).tenant, "acme")


class TlsTest(PythonTest):
    def start_with_tls(self):
        self.authority = Authority(self.folder, "ca")
        certificate, key = self.authority.issue("served", SERVER_NAMES)
        access, ready = self.folder / "access", self.folder / "ready"
        access.touch(0o640)
        access.write_text(f"certificate:{CLIENT_NAME} acme submitter never\n")
        self.server = self.daemon(
            "--listen", "localhost:0", "--ready-file", ready, "--tls-cert", certificate, "--tls-key", key,
            "--tls-client-ca", self.authority.certificate, "--access-file", access,
            executable=FAKE_NIGHTSHIFTD).start()
        self.address = ready.read_text().split()[-1]
        self.pair = self.authority.issue("client", f"URI:{CLIENT_NAME}")

    def refusal(self, **credentials):
        with nightshift.Client(self.address, patience_s=0, **credentials) as client:
            with self.assertRaises(grpc.RpcError) as caught:
                list(client.jobs())
        return caught.exception.code()

    def test_a_certificate_says_who_calls(self):
        self.start_with_tls()
        ca = self.authority.certificate.read_bytes()
        certificate, key = (path.read_bytes() for path in self.pair)
        with nightshift.Client(self.address, ca=ca, certificate=certificate, key=key) as client:
            job = client.submit(make_rows(50))
            self.assertEqual(len(list(client.results(job.name))), 50)
            self.assertEqual(client.wait(job.name).tenant, "acme")
        variables = {"NIGHTSHIFT_ADDRESS": self.address,
                     "NIGHTSHIFT_CA": str(self.authority.certificate),
                     "NIGHTSHIFT_CLIENT_CERT": str(self.pair[0]),
                     "NIGHTSHIFT_CLIENT_KEY": str(self.pair[1])}
        with mock.patch.dict(os.environ, variables), nightshift.Client() as client:
            self.assertEqual([listed.name for listed in client.jobs()], [job.name])

    def test_strangers_get_no_connection(self):
        self.start_with_tls()
        ca = self.authority.certificate.read_bytes()
        certificate, key = (path.read_bytes() for path in self.pair)
        other = Authority(self.folder, "other").certificate.read_bytes()
        self.assertEqual(self.refusal(), grpc.StatusCode.UNAVAILABLE)  # plain text
        self.assertEqual(self.refusal(ca=ca), grpc.StatusCode.UNAVAILABLE)
        self.assertEqual(self.refusal(ca=other, certificate=certificate, key=key),
                         grpc.StatusCode.UNAVAILABLE)


class DrainTest(PythonTest):
    def test_a_drained_daemon_is_not_waited_for(self):
        client = self.start()
        job = client.submit(make_rows(2))
        self.nightshift("server", "drain")
        with self.assertRaises(grpc.RpcError) as caught:
            client.submit(make_rows(3))
        self.assertIn("nightshift server drain --undo", caught.exception.details())
        self.assertEqual(client.job(job.name).name, job.name)  # reading goes on


class JobTest(PythonTest):
    def test_jobs_are_listed_waited_for_and_cancelled(self):
        client = self.start()
        never = nightshift.JobSpec(labels={"team": "a"})
        never.not_before.FromJsonString("2099-01-01T00:00:00Z")
        waiting, done = client.submit(make_rows(2), never), client.submit(make_rows(2))
        self.assertEqual([job.name for job in client.jobs(label="team=a")], [waiting.name])
        self.assertEqual(client.wait(done.name).counts.succeeded, 2)
        with self.assertRaisesRegex(TimeoutError, f"{waiting.name} has not ended in 0.1 s: 0 of 2"):
            client.wait(waiting.name, timeout_s=0.1)
        client.cancel(waiting.name)
        self.assertEqual(client.wait(waiting.name).state,
                         nightshift.JobState.Value("JOB_STATE_CANCELLED"))
        self.assertEqual({job.name for job in client.jobs()}, {waiting.name, done.name})


class InteroperateTest(PythonTest):
    def test_what_python_submits_the_command_line_resumes(self):
        client = self.start()
        source = write_rows(self.folder / "in.jsonl", make_rows(500))
        job = client.submit(source)
        target = self.folder / "out.jsonl"
        self.nightshift("run", source, "-o", target)
        self.assertEqual(len(list(client.jobs())), 1)
        seen = [result.custom_id for result in client.results(job.name)]
        self.assertEqual([row["id"] for row in read_rows(target)], seen)
        self.nightshift("results", job.name, "-o", self.folder / "again.jsonl")
        self.assertEqual((self.folder / "again.jsonl").read_bytes(), target.read_bytes())

    def test_what_the_command_line_submits_python_resumes(self):
        client = self.start()
        source = write_rows(self.folder / "in.jsonl", make_rows(500))
        options = ("--run-key", "night", "--label", "b=2", "--label", "a=1", "--max-tokens", "9")
        name = self.nightshift("submit", source, *options).strip()
        spec = nightshift.JobSpec(labels={"a": "1", "b": "2"}, sampling={"max_output_tokens": 9})
        self.assertEqual(client.submit(source, spec, run_key="night").name, name)
        lines = self.nightshift("results", name, "--follow").splitlines()
        rest = [result.custom_id for result in client.results(name, after_seq=123)]
        self.assertEqual([json.loads(line)["id"] for line in lines[123:]], rest)


class DisturbedTest(PythonTest):
    def test_results_go_on_when_the_daemon_is_killed_and_comes_back(self):
        client = self.start()
        rows = make_rows(5_000)
        expected = self.texts_by_run(rows)
        job = client.submit(rows, run_key="disturbed")
        seen = []
        for result in client.results(job.name):
            seen.append((result.seq, result.custom_id, result.completion.text.decode()))
            if len(seen) in (1, 1_000, 2_500):
                self.server.kill()
                self.server.start()
        self.assertEqual([seq for seq, _, _ in seen], list(range(1, 5_001)))
        self.assertEqual({name: text for _, name, text in seen}, expected)

    def test_a_daemon_that_stays_away_is_given_up(self):
        self.start()
        with nightshift.Client(self.server.address, patience_s=0.5) as client:
            job = client.submit(make_rows(1))
            self.server.kill()
            with self.assertRaises(grpc.RpcError) as caught:
                client.job(job.name)
        self.assertEqual(caught.exception.code(), grpc.StatusCode.UNAVAILABLE)

    def test_a_program_that_is_killed_makes_the_same_file(self):
        self.start()
        source = write_rows(self.folder / "in.jsonl", make_rows(5_000))
        stormy, calm = self.folder / "stormy.jsonl", self.folder / "calm.jsonl"
        seed = secrets.randbelow(1 << 32)
        print(f"seed {seed}", file=sys.stderr)
        chance = random.Random(seed)
        for _ in range(8):
            program = self.program(source, stormy)
            try:
                program.communicate(timeout=chance.uniform(0.2, 0.8))
                self.assertEqual(program.returncode, 0)
            except subprocess.TimeoutExpired:
                program.kill()
                program.communicate()
        for target in (stormy, calm):
            program = self.program(source, target)
            _, said = program.communicate(timeout=LIMIT_S)
            self.assertEqual(program.returncode, 0, said)
        self.assertEqual(len(read_rows(calm)), 5_000)
        self.assertEqual(stormy.read_bytes(), calm.read_bytes())
        self.assertEqual(len(self.nightshift("list", "--json").splitlines()), 1)

    def program(self, source, target):
        program = subprocess.Popen(
            [sys.executable, PROGRAM, self.server.address, source, target, "night"],
            env={"PYTHONPATH": ":".join(PYTHON_PATH)}, stderr=subprocess.PIPE, text=True)
        self.addCleanup(program.kill)
        return program

    def test_memory_does_not_grow_with_the_results(self):
        client = self.start()
        job = client.submit(make_rows(20_000))
        memory = {result.seq: resident_bytes() for result in client.results(job.name)
                  if result.seq in (10_000, 20_000)}
        self.assertLess(memory[20_000] - memory[10_000], 8 * MIB)


def resident_bytes():
    status = pathlib.Path("/proc/self/status").read_text()
    return next(int(line.split()[1]) * 1024 for line in status.splitlines()
                if line.startswith("VmRSS:"))


if __name__ == "__main__":
    unittest.main(verbosity=2)
