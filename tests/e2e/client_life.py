"""Clients that log what a daemon told them while it is killed, and what must hold afterwards."""

import collections
import datetime
import json
import shutil
import threading

from e2e_lib import FAKE_NIGHTSHIFTD, LIMIT_S, EndToEndTest, read_rows, run_client, write_rows

FAULTS = (1, 9)  # exit codes of the client: an error inside, damaged data
NOT_FOUND = 6
STOPPED = 5
DISK_FULL = 10
UNAVAILABLE = 8


def make_rows(count):
    """Of different lengths, so that they finish at different times."""
    return [{"id": f"row-{i}", "prompt": f"document {i} " + "x" * (7 * i % 50),
             "max_tokens": 1 + 11 * i % 60, "temperature": 0.7, "seed": i}
            for i in range(count)]


class Client:
    """One client's way through the API, on a thread, with what it was told."""

    def __init__(self, test, server, name, source=None, faults=0):
        """`source`: the test's own unless it is given; `faults`: so many calls may fail for a fault
        that was made, and are made again."""
        self.test, self.server, self.name = test, server, name
        self.source, self.faults = source or test.source, faults
        self.log = []
        self.thread = threading.Thread(target=self.live, daemon=True)
        self.thread.start()

    def call(self, *arguments):
        """Calls until the daemon answers."""
        while True:
            done = run_client(*arguments, address=self.server.address, limit_s=2 * LIMIT_S)
            self.log.append((arguments, done.returncode, done.stdout[:60], done.stderr))
            if done.returncode in FAULTS and self.faults > 0:
                self.faults -= 1
            elif done.returncode != UNAVAILABLE:
                return done
            else:
                run_client("health", "--wait", address=self.server.address)

    def said(self):
        return json.dumps([str(entry) for entry in self.log], indent=1)


class Life(Client):
    """Runs a job, stops another, lets a third expire and deletes a fourth."""

    def live(self):
        source = self.source
        self.target = self.test.folder / f"{self.name}.results.jsonl"
        never = ["--not-before", "2099-01-01T00:00:00Z"]
        in_six_hours = datetime.datetime.now(datetime.timezone.utc) + datetime.timedelta(hours=6)
        late = self.call("submit", source, "--run-key", f"{self.name} late", "--run-window",
                         f"{in_six_hours:%H}:00-{in_six_hours:%H}:59 UTC",
                         "--completion-window", "1s").stdout.strip()
        self.ran = self.call("run", source, "-o", self.target, "--run-key", self.name)
        stopped = self.call("submit", source, "--run-key", f"{self.name} stopped",
                            *never).stdout.strip()
        self.changed = [self.call(verb, stopped) for verb in ("pause", "resume", "cancel")]
        gone = self.call("submit", source, "--run-key", f"{self.name} gone").stdout.strip()
        self.deleted = self.call("delete", gone, "--force", "--allow-missing")
        self.gone = gone
        self.ended = {"batch_cancelled": stopped, "batch_expired": late}
        self.waited = [self.call("wait", job) for job in self.ended.values()]
        self.fetched = {code: self.call("results", job) for code, job in self.ended.items()}


class ShortLife(Client):
    """Runs a job, and stops another and deletes it; what the daemon refuses is asked for again."""

    def live(self):
        source = self.source
        self.target = self.test.folder / f"{self.name}.results.jsonl"
        self.ran = self.ask("run", source, "-o", self.target, "--run-key", self.name, fine=(0, 3))
        self.stopped = self.ask("submit", source, "--run-key", f"{self.name} stopped",
                                "--not-before", "2099-01-01T00:00:00Z").stdout.strip()
        self.ask("cancel", self.stopped)
        self.waited = self.ask("wait", self.stopped, fine=(STOPPED,))
        self.fetched = self.ask("results", self.stopped)
        self.deleted = self.ask("delete", self.stopped, "--allow-missing")

    def ask(self, *arguments, fine=(0,)):
        errors = 0
        while errors < 4:  # one fault, and what follows from it
            done = self.call(*arguments)
            if done.returncode in fine:
                break
            # A full disk has room again when the daemon has seen that it has.
            if done.returncode == DISK_FULL:
                self.server.died_within(0.1)
            else:
                errors += 1
        return done


class Changes(Client):
    """A job that is paused, resumed and cancelled while it runs, and that may run out of time."""

    def __init__(self, test, server, name, chance):
        self.window = chance.choice(
            [[], ["--completion-window", f"{chance.uniform(0.01, 0.6):.3f}"]])
        self.steps = [(chance.uniform(0, 0.2), chance.choice(["pause", "resume", "resume", "cancel"]))
                      for _ in range(chance.randint(0, 4))]
        super().__init__(test, server, name)

    def live(self):
        job = self.call("submit", self.source, "--run-key", self.name, *self.window).stdout.strip()
        pause = threading.Event()
        for seconds, verb in self.steps:
            pause.wait(seconds)
            self.call(verb, job)  # refused when the job has ended
        self.call("resume", job)
        self.waited = self.call("wait", job)
        self.status = self.call("status", job, "--json")
        self.fetched = self.call("results", job)


class LifeTest(EndToEndTest):
    """A daemon with a fake engine, whose output is a pure function of prompt and seed."""

    num_rows = 40

    def make_server(self, *options, block=8, ballast="64KiB", name="daemon"):
        return self.daemon("--max-block-requests", block, "--disk-reserve", "0", "--disk-ballast",
                           ballast, *options, name=name, executable=FAKE_NIGHTSHIFTD)

    def start_calm(self):
        """Makes the daemon and what its jobs say when nobody disturbs it."""
        self.source = write_rows(self.folder / "in.jsonl", make_rows(self.num_rows))
        self.server = self.make_server()
        self.server.start()
        calm = self.folder / "calm.jsonl"
        done = run_client("run", self.source, "-o", calm, address=self.server.address)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.expected = {row["id"]: row["text"] for row in read_rows(calm)}
        self.assertEqual(self.server.drain(), 0)

    def move_pack_out(self):
        """Leaves nothing in the state directory but state."""
        pack = self.folder / "pack"
        shutil.move(self.server.folder / "state" / "fake", pack)
        self.server = self.make_server("--model", pack)

    def check(self, life):
        life.thread.join(timeout=LIMIT_S)
        self.assertFalse(life.thread.is_alive(), life.said() + self.server.tail())
        said = life.said()
        self.assertEqual(life.ran.returncode, 0, said)
        rows = read_rows(life.target)
        counts = collections.Counter(row["id"] for row in rows)
        self.assertEqual(set(counts.values()), {1}, said)
        self.assertEqual({row["id"]: row["text"] for row in rows}, self.expected)
        # A job that was stopped or came too late has a line for every row all the same.
        self.assertEqual([done.returncode for done in life.changed], [0, 0, 0], said)
        self.assertEqual([done.returncode for done in life.waited], [STOPPED, STOPPED], said)
        for code, done in life.fetched.items():
            lines = [json.loads(line) for line in done.stdout.splitlines()]
            self.assertEqual(sorted(row["id"] for row in lines), sorted(self.expected), said)
            self.assertEqual({row.get("error", {}).get("code") for row in lines}, {code}, said)
        self.assertEqual(life.deleted.returncode, 0, said)
        status = run_client("status", life.gone, address=self.server.address)
        self.assertEqual(status.returncode, NOT_FOUND, status.stderr)

    def check_short(self, life):
        said = life.said()
        self.assertIn(life.ran.returncode, (0, 3), said)
        rows = read_rows(life.target)
        # An input that cannot be opened is an error of the row, told as such; nobody has read its id.
        names = [row.get("id", f"row-{row['index']}") for row in rows]
        self.assertEqual(sorted(names), sorted(self.expected), said)
        for row in rows:
            if "error" in row:
                self.assertIn("input", row["error"]["message"], said)
            else:
                self.assertEqual(row["text"], self.expected[row["id"]], said)
        lines = [json.loads(line) for line in life.fetched.stdout.splitlines()]
        names = [row.get("id", f"row-{row['index']}") for row in lines]
        self.assertEqual(sorted(names), sorted(self.expected), said)
        self.assertEqual(life.deleted.returncode, 0, said)
        status = run_client("status", life.stopped, address=self.server.address)
        self.assertEqual(status.returncode, NOT_FOUND, status.stderr)

    def check_changes(self, life):
        """A line of output or of error for each row, as the job's counts say; returns its state."""
        life.thread.join(timeout=LIMIT_S)
        self.assertFalse(life.thread.is_alive(), life.said() + self.server.tail())
        said = life.said()
        job = json.loads(life.status.stdout)
        counts = job["counts"]
        ended = {"succeeded": (0, None), "cancelled": (STOPPED, "batch_cancelled"),
                 "expired": (STOPPED, "batch_expired")}
        self.assertIn(job["state"], ended, said)
        code, reason = ended[job["state"]]
        self.assertEqual(life.waited.returncode, code, said)
        lines = [json.loads(line) for line in life.fetched.stdout.splitlines()]
        self.assertEqual(sorted(row["id"] for row in lines), sorted(self.expected), said)
        outputs = {row["id"]: row["text"] for row in lines if "error" not in row}
        errors = [row["error"]["code"] for row in lines if "error" in row]
        self.assertEqual(outputs, {name: self.expected[name] for name in outputs}, said)
        self.assertEqual(len(outputs), counts["succeeded"], said)
        self.assertEqual(len(errors), counts["cancelled"] + counts["expired"], said)
        self.assertEqual(set(errors) - {reason}, set(), said)
        return f"{job['state']}, {'in part' if outputs and errors else 'as a whole'}"

    def check_counts(self):
        """Of every job, whatever its state: outcomes add up to its rows, and when it has ended there
        is a line for each, of output or of error."""
        listed = run_client("list", "--json", "--limit", "10000", address=self.server.address)
        self.assertEqual(listed.returncode, 0, listed.stderr)
        for line in listed.stdout.splitlines():
            job = json.loads(line)
            counts = job["counts"]
            total = counts.pop("total")
            self.assertEqual(sum(counts.values()), total, line)
            self.assertEqual(total, self.num_rows, line)
            if job["state"] in ("succeeded", "failed", "cancelled", "expired"):
                self.assertEqual(counts["pending"] + counts["running"], 0, line)
                self.assertEqual(job["last_seq"], total, line)
