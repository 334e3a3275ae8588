#!/usr/bin/env python3
"""What scripts, shells and readers get from the command line: interrupts, parts, JSON, completions, man."""

import json
import os
import pty
import re
import select
import shutil
import signal
import subprocess
import time
import unittest

from e2e_lib import (BUILD, FAKE_NIGHTSHIFTD, LIMIT_S, NIGHTSHIFT, NIGHTSHIFTD, ROOT, EndToEndTest,
                     client_environment, read_rows, run_client, start_client, tiny_pack, write_rows)

UNAVAILABLE = 8
DAMAGED = 9
STOPPED = 5
USAGE = 2
MANY = 3_000
NEVER = ("--not-before", "2099-01-01T00:00:00Z")


class CommandLineTest(EndToEndTest):
    def start(self, *options):
        self.server = self.daemon(*options, executable=FAKE_NIGHTSHIFTD).start()
        return self.server

    def nightshift(self, *arguments, exit_code=0):
        done = run_client(*arguments, address=self.server.address)
        self.assertEqual(done.returncode, exit_code, f"{arguments}: {done.stdout}{done.stderr}")
        return done

    def rows(self, count=3, name="in.jsonl"):
        return write_rows(self.folder / name,
                          [{"id": str(i), "prompt": f"row {i}", "max_tokens": 8}
                           for i in range(count)])

    def submit(self, *options, key="a"):
        return self.nightshift("submit", self.rows(), "--run-key", key, *options).stdout.strip()

    def paused_midway(self):
        """A job that has some of its results; its name and how many."""
        job = self.nightshift("submit", self.rows(MANY, "many.jsonl")).stdout.strip()
        follower = start_client("results", job, "--follow", address=self.server.address)
        self.addCleanup(follower.communicate)
        self.addCleanup(follower.kill)
        self.assertTrue(follower.stdout.readline())
        self.nightshift("pause", job)
        follower.kill()
        return job


class InterruptTest(CommandLineTest):
    def run_until_it_follows(self, *options):
        """`run` of a job that does not begin, once it has told its name."""
        client = start_client("run", self.rows(), "-o", self.folder / "out.jsonl", *NEVER,
                              *options, address=self.server.address)
        self.addCleanup(client.kill)
        said = client.stderr.readline()
        self.assertIn("accepted", said)
        return client, said.split()[1]

    def test_ctrl_c_detaches_and_says_how_to_attach_again(self):
        self.start()
        client, job = self.run_until_it_follows()
        client.send_signal(signal.SIGINT)
        _, said = client.communicate(timeout=LIMIT_S)
        self.assertEqual(client.returncode, 130, said)
        self.assertIn(f"nightshift results {job} --follow", said)
        self.assertEqual(json.loads(self.nightshift("status", job, "--json").stdout)["state"],
                         "queued")

    def test_ctrl_c_cancels_when_it_is_asked_to(self):
        self.start()
        client, job = self.run_until_it_follows("--cancel-on-interrupt")
        client.send_signal(signal.SIGINT)
        _, said = client.communicate(timeout=LIMIT_S)
        self.assertEqual(client.returncode, STOPPED, said)
        self.assertEqual(json.loads(self.nightshift("status", job, "--json").stdout)["state"],
                         "cancelled")

    def test_a_second_ctrl_c_does_not_wait(self):
        server = self.start()
        client, _ = self.run_until_it_follows("--cancel-on-interrupt")
        os.kill(server.pid, signal.SIGSTOP)  # so that the cancel of the first one gets no answer
        try:
            client.send_signal(signal.SIGINT)
            while "cancelling" not in client.stderr.readline():
                self.assertIsNone(client.poll())
            client.send_signal(signal.SIGINT)
            client.communicate(timeout=LIMIT_S)
        finally:
            os.kill(server.pid, signal.SIGCONT)
        self.assertEqual(client.returncode, -signal.SIGINT)  # 130 to a shell


class PartTest(CommandLineTest):
    def test_a_part_is_a_file_and_its_exit_code_says_so(self):
        self.start("--max-block-requests", "8")
        job = self.paused_midway()
        target = self.folder / "part.jsonl"
        done = self.nightshift("results", job, "--partial", "-o", target, exit_code=UNAVAILABLE)
        first = read_rows(target)
        self.assertTrue(0 < len(first) < MANY, len(first))
        self.assertRegex(done.stderr, f"{job} is paused: [0-9,]+ of {MANY:,} results in {target}")
        self.nightshift("resume", job)
        self.nightshift("wait", job)
        self.nightshift("results", job, "--partial", "-o", target)
        whole = read_rows(target)
        self.assertEqual(len(whole), MANY)
        self.assertEqual(whole[:len(first)], first)


class CancelAllTest(CommandLineTest):
    def state_of(self, job):
        return json.loads(self.nightshift("status", job, "--json").stdout)["state"]

    def answer(self, text, *arguments):
        """Runs the command on a terminal, on which a person answers."""
        pid, terminal = pty.fork()
        if pid == 0:
            os.execve(NIGHTSHIFT, [str(NIGHTSHIFT), *arguments],
                      client_environment(self.server.address) | {"TERM": "dumb"})
        said = read_until(terminal, rb"\[y/N\] ")
        os.write(terminal, text.encode() + b"\n")
        _, status = os.waitpid(pid, 0)
        os.close(terminal)
        return os.waitstatus_to_exitcode(status), said.decode()

    def test_all_means_all_that_have_not_ended(self):
        self.start()
        ended = self.submit(key="ended")
        self.nightshift("wait", ended)
        jobs = [self.submit(*NEVER, key=str(i)) for i in range(3)]
        self.nightshift("pause", jobs[2])
        done = self.nightshift("cancel", "--all", "--yes", "--json")
        self.assertEqual({json.loads(line)["name"] for line in done.stdout.splitlines()},
                         set(jobs))
        self.assertEqual([self.state_of(job) for job in jobs], ["cancelled"] * 3)
        self.assertEqual(self.state_of(ended), "succeeded")
        self.assertIn("cancelled 0 jobs", self.nightshift("cancel", "--all", "--yes").stderr)

    def test_it_asks_on_a_terminal_and_is_refused_elsewhere(self):
        self.start()
        job = self.submit(*NEVER, "--label", "team=a")
        other = self.submit(*NEVER, key="other")
        refused = self.nightshift("cancel", "--all", exit_code=1)
        self.assertIn("cancel 2 jobs? nobody is at a terminal to be asked: give --yes",
                      refused.stderr)
        code, said = self.answer("n", "cancel", "--all")
        self.assertEqual((code, self.state_of(job)), (1, "queued"), said)
        code, said = self.answer("y", "cancel", "--all", "--label", "team=a")
        self.assertIn(f"cancel {job}?", said)
        self.assertEqual((code, self.state_of(job), self.state_of(other)),
                         (0, "cancelled", "queued"), said)

    def test_what_is_no_choice_is_refused(self):
        self.start()
        self.assertIn("name a job, or --all", self.nightshift("cancel", exit_code=USAGE).stderr)
        self.assertIn("one of them",
                      self.nightshift("cancel", "x", "--all", exit_code=USAGE).stderr)


class JsonTest(CommandLineTest):
    def documented(self):
        """The fields of each command's objects, as the manual has them."""
        page = run_client("man").stdout.replace("\\-", "-").replace("\\fB", "").replace("\\fR", "")
        part = page[page.index(".SH JSON OUTPUT"):page.index(".SH ENVIRONMENT")]
        fields = {}
        for commands, text in re.findall(r"\.TP\n(.*)\n(.*)\n", part):
            for command in commands.split(", ") if ": " in text else []:
                fields[command] = re.findall(r"[a-z_0-9]+", text.split(": ")[1])
        return fields

    def check(self, command, *arguments, exit_code=0):
        lines = self.nightshift(*arguments, "--json", exit_code=exit_code).stdout.splitlines()
        self.assertTrue(lines, arguments)
        for line in lines:
            self.assertEqual(list(json.loads(line)), self.fields[command], command)
        self.checked.add(command)

    def test_each_command_prints_the_fields_that_the_manual_tells(self):
        self.start()
        self.fields, self.checked = self.documented(), set()
        rows = self.rows()
        self.check("run -o FILE", "run", rows, "-o", self.folder / "out.jsonl")
        self.check("submit", "submit", rows)
        job = self.submit()
        self.check("wait", "wait", job)
        self.check("status", "status", job)
        self.check("results -o FILE", "results", job, "-o", self.folder / "again.jsonl")
        self.check("delete", "delete", job)
        job = self.submit(*NEVER)
        self.check("pause", "pause", job)
        self.check("resume", "resume", job)
        self.check("cancel", "cancel", job)
        self.check("retry", "retry", job)
        self.check("list", "list")
        self.check("models", "models")
        self.check("health", "health")
        self.check("policy show", "policy", "show")
        self.check("policy explain", "policy", "explain")
        self.check("server info", "server", "info")
        self.check("server backup", "server", "backup", self.folder / "backup")
        self.check("server timeline FILE", "server", "timeline", self.folder / "trace.json")
        self.check("server drain", "server", "drain")
        pack = tiny_pack("llama")
        self.check("model verify", "model", "verify", pack)
        self.check("make-token", "make-token", "--role", "reader")
        shown = self.nightshift("model", "show", pack, "--json").stdout
        again = self.folder / "llama"
        imported = self.nightshift("--json", "import", ROOT / "tests" / "data" / "tiny" / "llama",
                                   "--output", again)
        self.assertEqual(json.loads(imported.stdout), json.loads(shown))
        shard = json.loads((again / "manifest.json").read_text())["tensors"][0]["shards"][0]
        with open(again / "weights.extent", "r+b") as extent:
            extent.seek(shard[2])
            byte = extent.read(1)[0]
            extent.seek(shard[2])
            extent.write(bytes([byte ^ 1]))
        damaged = json.loads(self.nightshift("model", "verify", again, "--json",
                                             exit_code=DAMAGED).stdout)
        self.assertEqual((damaged["good"], damaged["num_problems"], len(damaged["problems"])),
                         (False, 1, 1))
        errors = self.nightshift("status", "none", "--json", exit_code=6).stderr
        self.assertEqual(list(json.loads(errors)["error"]), self.fields["errors"])
        # evaluate needs a model that knows words: evaluation_test.cc has its fields.
        self.assertEqual(self.checked | {"errors", "evaluate"}, set(self.fields))

    def test_a_second_run_says_that_it_attached(self):
        self.start()
        first, second = (self.nightshift("run", self.rows(), "-o", self.folder / name)
                         for name in ("first.jsonl", "second.jsonl"))
        job = first.stderr.split()[1]
        self.assertIn(f"{job} accepted: 3 requests", first.stderr)
        self.assertIn(f"attached to {job}, which", second.stderr)
        self.assertNotIn("accepted", second.stderr)
        told = json.loads(self.nightshift("submit", self.rows(), "--json").stdout)
        self.assertEqual((told["name"], told["attached"]), (job, True))
        self.assertFalse(json.loads(self.nightshift("status", job, "--json").stdout)["attached"])

    def test_quiet_says_nothing_but_errors(self):
        self.start()
        done = self.nightshift("run", self.rows(), "-o", self.folder / "out.jsonl", "--quiet")
        self.assertEqual(done.stdout + done.stderr, "")
        self.assertIn("none", self.nightshift("status", "none", "--quiet", exit_code=6).stderr)


def read_until(terminal, pattern):
    """What a terminal shows until it matches."""
    shown = b""
    give_up = time.monotonic() + LIMIT_S
    while not re.search(pattern, shown):
        left = give_up - time.monotonic()
        if left < 0 or not select.select([terminal], [], [], left)[0]:
            raise AssertionError(f"no {pattern} in {shown}")
        shown += os.read(terminal, 4096)
    return shown


class CompletionTest(CommandLineTest):
    def environment(self):
        path = f"{NIGHTSHIFT.parent}:{os.environ['PATH']}"
        return client_environment(self.server.address) | {"PATH": path, "TERM": "dumb"}

    def shell(self, *command):
        if shutil.which(command[0]) is None:
            self.skipTest(f"{command[0]} is not installed")
        done = subprocess.run(command, env=self.environment(), capture_output=True, text=True,
                              timeout=LIMIT_S, check=False, cwd=self.folder)
        self.assertEqual(done.returncode, 0, done.stderr)
        return done.stdout.splitlines()

    def bash(self, *words):
        return self.shell("bash", "-c", """source <(nightshift completion bash)
            COMP_WORDS=("$@") COMP_CWORD=$(($# - 1))
            _nightshift 2> /dev/null; printf '%s\\n' "${COMPREPLY[@]}" """, "bash", *words)

    def test_bash(self):
        self.start()
        job = self.submit(*NEVER).removeprefix("jobs/")
        self.assertEqual(self.bash("nightshift", "sta"), ["status"])
        self.assertEqual(self.bash("nightshift", "server", ""),
                         ["info", "timeline", "drain", "backup"])
        self.assertEqual(self.bash("nightshift", "run", "--prio"), ["--priority"])
        self.assertEqual(self.bash("nightshift", "run", "--priority", ""),
                         ["low", "normal", "high"])
        self.assertEqual(self.bash("nightshift", "run", "--priority", "=", "h"), ["high"])
        self.assertEqual(self.bash("nightshift", "status", ""), [job])
        self.assertEqual(self.bash("nightshift", "status", "jobs/"), [f"jobs/{job}"])
        self.assertEqual(self.bash("nightshift", "--address", "unix", ":",
                                   f"{self.folder}/none", "status", ""), [""])
        self.assertEqual(self.bash("nightshift", "run", "--model", "fa"), ["fake"])
        self.assertEqual(self.bash("nightshift", "submit", "in"), ["in.jsonl"])

    def test_fish(self):
        self.start()
        job = self.submit(*NEVER).removeprefix("jobs/")
        complete = 'nightshift completion fish | source; complete -C "nightshift '
        self.assertEqual(self.shell("fish", "-c", complete + 'sta"'), ["status\tShow a job"])
        self.assertEqual(self.shell("fish", "-c", complete + 'cancel "'),
                         [f"{job}\tqueued, 0/3"])
        self.assertEqual(self.shell("fish", "-c", complete + 'list --label=x --st"'),
                         ["--state\tOnly jobs in this state, such as running or failed"])
        self.assertIn("in.jsonl", self.shell("fish", "-c", complete + 'submit in"'))

    def test_zsh(self):
        self.start()
        if shutil.which("zsh") is None:
            self.skipTest("zsh is not installed")
        job = self.submit(*NEVER).removeprefix("jobs/")
        pid, terminal = pty.fork()
        if pid == 0:
            os.chdir(self.folder)
            os.execvpe("zsh", ["zsh", "-f", "-i"], self.environment() | {"PS1": "ready> "})
        try:
            os.write(terminal, b"autoload -Uz compinit && compinit -u -d dump\n"
                               b"source <(nightshift completion zsh); echo sour''ced\n")
            read_until(terminal, rb"sourced")
            for typed, expected in [("sta", "status "), ("status ", f"{job} "),
                                    ("run --priority n", "normal "), ("submit in.j", "in.jsonl ")]:
                os.write(terminal, f"nightshift {typed}\t".encode())
                end = typed.split(" ")[-1]
                read_until(terminal, re.escape(expected[len(end):]).encode())
                os.write(terminal, b"\x15")  # the line is given up
        finally:
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
            os.close(terminal)


class ManTest(unittest.TestCase):
    def test_pages_are_clean(self):
        for program, section in ((NIGHTSHIFT, 1), (NIGHTSHIFTD, 8)):
            made = subprocess.run([program, "man"], capture_output=True, text=True, check=True)
            for heading in ("NAME", "SYNOPSIS", "OPTIONS", "COMMANDS", "ENVIRONMENT", "FILES",
                            "EXIT STATUS", "EXAMPLES"):
                self.assertIn(f".SH {heading}\n", made.stdout)
            self.assertIn(f".TH {program.name.upper()} {section} ", made.stdout)
            with self.subTest(program.name):
                self.check(made.stdout)

    def check(self, page):
        checkers = [["mandoc", "-T", "lint", "-W", "warning"], ["man", "--warnings", "-l", "-"]]
        found = [checker for checker in checkers if shutil.which(checker[0])]
        if not found:
            self.skipTest("neither mandoc nor man is installed")
        for checker in found:
            done = subprocess.run(checker, input=page, capture_output=True, text=True, check=False,
                                  env=os.environ | {"MANWIDTH": "80", "LC_ALL": "C.UTF-8"})
            problems = done.stdout if checker[0] == "mandoc" else done.stderr
            self.assertEqual(problems, "", checker)


class InstallTest(EndToEndTest):
    def test_each_component_brings_its_own_files(self):
        expected = {"nightshift": {"bin/nightshift", "share/man/man1/nightshift.1.gz",
                                   "share/bash-completion/completions/nightshift",
                                   "share/zsh/vendor-completions/_nightshift",
                                   "share/fish/vendor_completions.d/nightshift.fish"},
                    "nightshiftd": {"bin/nightshiftd", "share/man/man8/nightshiftd.8.gz"}}
        for component, files in expected.items():
            prefix = self.folder / component
            done = subprocess.run(["cmake", "--install", BUILD, "--component", component,
                                   "--prefix", prefix], capture_output=True, text=True, check=False)
            self.assertEqual(done.returncode, 0, done.stderr)
            self.assertLessEqual(files, {str(path.relative_to(prefix))
                                         for path in prefix.rglob("*")})


if __name__ == "__main__":
    unittest.main(verbosity=2)
