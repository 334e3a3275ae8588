"""Real daemons and clients for the end-to-end tests: start, kill, ask, read results.

The executables are those of $NIGHTSHIFT_BUILD (build/release unless set). A test that waits waits
for an event (readiness, a process that ends), with a limit that only a fault can reach.
"""

import contextlib
import fcntl
import json
import os
import pathlib
import select
import shutil
import signal
import socket
import subprocess
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
BUILD = pathlib.Path(os.environ.get("NIGHTSHIFT_BUILD", ROOT / "build" / "release")).resolve()
NIGHTSHIFT = BUILD / "client" / "nightshift"
NIGHTSHIFTD = BUILD / "server" / "nightshiftd"
FAKE_NIGHTSHIFTD = BUILD / "tests" / "support" / "fake_nightshiftd"
CACHE = pathlib.Path(os.environ.get("NIGHTSHIFT_CACHE", pathlib.Path.home() / ".cache/nightshift"))
PACKS = BUILD / "tests" / "e2e" / "packs"
MIB = 1 << 20
LIMIT_S = 300
# A user's own client.toml and what was measured of the machine have no part in a test.
NEW_HOME = tempfile.TemporaryDirectory(prefix="nightshift-home-")


def import_pack(source, name, *options):
    """Imports `source` once a build folder as pack `name`; returns its path."""
    PACKS.mkdir(parents=True, exist_ok=True)
    pack = PACKS / name
    with open(PACKS / "lock", "w", encoding="utf-8") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not pack.exists():
            run_client("import", source, "--output", pack, *options).check_returncode()
    return pack


def smollm2_pack(name="smollm2", *options):
    gguf = CACHE / "SmolLM2-135M-Instruct.Q4_1.gguf"
    if not gguf.exists():
        raise FileNotFoundError(f"{gguf} is missing: run deploy/fetch-model")
    return import_pack(gguf, name, *options)


def smollm2_bf16_pack():
    """Three times as large as the file's own groups of 4 bits: what does not fit, or must be streamed."""
    return smollm2_pack("smollm2-bf16", "--weights", "bf16", "--requantise")


def tiny_pack(name):
    """A pack of tests/data/tiny/NAME: random weights, no tokenizer, prompts are token ids."""
    return import_pack(ROOT / "tests" / "data" / "tiny" / name, name)


def run_client(*arguments, address=None, stdin=None, limit_s=LIMIT_S):
    """Runs `nightshift` to its end; returns the finished process with text output."""
    return subprocess.run(
        [NIGHTSHIFT, *map(str, arguments)], env=client_environment(address), input=stdin,
        capture_output=True, text=True, timeout=limit_s, check=False)


def start_client(*arguments, address=None):
    return subprocess.Popen(
        [NIGHTSHIFT, *map(str, arguments)], env=client_environment(address),
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def client_environment(address):
    environment = {k: v for k, v in os.environ.items() if not k.startswith("NIGHTSHIFT_")}
    environment |= {"XDG_CONFIG_HOME": NEW_HOME.name, "XDG_CACHE_HOME": NEW_HOME.name}
    if address:
        environment["NIGHTSHIFT_ADDRESS"] = address
    return environment


class Cgroup:
    """A memory cgroup of `bytes`, removed at the end."""

    def __init__(self, name, limit_bytes):
        v2 = pathlib.Path("/sys/fs/cgroup/cgroup.controllers").exists()
        self.folder = pathlib.Path("/sys/fs/cgroup") / ("" if v2 else "memory") / name
        self.folder.mkdir(exist_ok=True)
        limit, self.peak_file, self.events = (
            ("memory.max", "memory.peak", "memory.events") if v2 else
            ("memory.limit_in_bytes", "memory.max_usage_in_bytes", "memory.oom_control"))
        (self.folder / limit).write_text(str(limit_bytes))

    def oom_kills(self):
        lines = (self.folder / self.events).read_text().splitlines()
        return next(int(line.split()[1]) for line in lines if line.startswith("oom_kill "))

    def enter(self):
        """The beginning of a command that runs its rest in the group."""
        return ["sh", "-c", f'echo $$ > {self.folder}/cgroup.procs; exec "$@"', "sh"]

    def peak_mib(self):
        return int((self.folder / self.peak_file).read_text()) / MIB

    def remove(self):
        with contextlib.suppress(OSError):
            self.folder.rmdir()


def write_rows(path, rows):
    """Writes one line a row: objects as JSON, bytes as they are."""
    with open(path, "wb") as stream:
        for row in rows:
            line = row if isinstance(row, bytes) else json.dumps(row).encode()
            stream.write(line + b"\n")
    return path


def read_rows(path):
    with open(path, encoding="utf-8") as stream:
        return [json.loads(line) for line in stream]


def read_if_there(path):
    """The text of a file of /proc, empty when what it is about has ended."""
    try:
        return path.read_text()
    except (FileNotFoundError, ProcessLookupError):
        return ""


class Daemon:
    """A daemon on a Unix socket with its own state folder, started and stopped at will."""

    def __init__(self, folder, *options, executable=NIGHTSHIFTD, prefix=()):
        """`prefix`: a command that becomes the daemon, such as one that enters a cgroup."""
        self.folder = pathlib.Path(folder)
        self.address = f"unix:{self.folder}/socket"
        self.log = self.folder / "nightshiftd.log"
        self._command = [*prefix, executable, "--listen", self.address, "--state-dir",
                         self.folder / "state", *options]
        self._process = None
        self._ended = None  # a descriptor that is readable when the process has ended
        self._notify = None
        self._log_start = 0

    @property
    def pid(self):
        return self._process.pid

    def launch(self, variables=()):
        """Starts the process, with further variables, without waiting until it is ready."""
        self._notify = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        path = self.folder / "notify"
        path.unlink(missing_ok=True)
        self._notify.bind(str(path))
        environment = client_environment(None) | {"NOTIFY_SOCKET": str(path)} | dict(variables)
        with open(self.log, "ab") as log:
            self._log_start = log.tell()
            self._process = subprocess.Popen(
                [str(part) for part in self._command], env=environment, stdin=subprocess.DEVNULL,
                stdout=log, stderr=log)
        self._ended = os.pidfd_open(self._process.pid)

    def wait_ready(self):
        """Waits for READY=1 of the systemd protocol; a daemon that ends instead is an error."""
        while self._notify in select.select([self._notify, self._ended], [], [], LIMIT_S)[0]:
            if b"READY=1" in self._notify.recv(4096):
                return
        raise AssertionError(f"daemon not ready, exit code {self._process.poll()}:\n{self.tail()}")

    def start(self):
        self.launch()
        self.wait_ready()
        return self

    def wait(self, limit_s=LIMIT_S):
        """Waits for the process to end; returns its exit code."""
        if not self.died_within(limit_s):
            raise AssertionError(f"the daemon has not ended in {limit_s} s:\n{self.tail()}")
        if self._ended is not None:
            self._notify.close()
            os.close(self._ended)
            self._ended = None
        return self._process.wait()

    def died_within(self, seconds):
        """Whether the process ends in that time."""
        ended = self._ended
        if ended is None:
            return True
        poller = select.poll()
        poller.register(ended, select.POLLIN)
        return bool(poller.poll(1000 * seconds))

    def kill(self):
        self._process.kill()
        return self.wait()

    def terminate(self):
        self._process.send_signal(signal.SIGTERM)

    def drain(self):
        self.terminate()
        return self.wait()

    def close(self):
        if self._process and self._process.poll() is None:
            self.kill()

    def log_of_this_start(self):
        with open(self.log, encoding="utf-8", errors="replace") as log:
            log.seek(self._log_start)
            return log.read()

    def tail(self):
        return self.log.read_text(errors="replace")[-4000:]

    def wait_for_log(self, what):
        """Waits until the daemon has logged it since it was started."""
        for _ in range(LIMIT_S * 20):
            if what in self.log_of_this_start():
                return
            if self.died_within(0.05):
                break
        raise AssertionError(f"the daemon does not log {what}:\n{self.tail()}")

    def engine_pid(self):
        """The engine process; None while there is none."""
        threads = pathlib.Path(f"/proc/{self._process.pid}/task").glob("*/children")
        pids = [int(pid) for children in threads for pid in read_if_there(children).split()]
        return pids[0] if pids else None

    def kill_engine(self):
        """True when there was one."""
        pid = self.engine_pid()
        if pid is None:
            return False
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
        return True

    def _processes(self):
        engine = self.engine_pid()
        return [pathlib.Path(f"/proc/{pid}") for pid in (self._process.pid, engine) if pid]

    def memory_bytes(self, field):
        """A field of /proc/PID/status, of the daemon and its engine process together: VmRSS now,
        VmHWM the peaks since reset_peak."""
        return sum(int(line.split()[1]) * 1024
                   for process in self._processes()
                   for line in (process / "status").read_text().splitlines()
                   if line.startswith(field + ":"))

    def reset_peak(self):
        for process in self._processes():
            (process / "clear_refs").write_text("5")


class EndToEndTest(unittest.TestCase):
    """A scratch folder and daemons that do not outlive the test."""

    def setUp(self):
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="nightshift-"))
        self.addCleanup(shutil.rmtree, self.folder, ignore_errors=True)

    def daemon(self, *options, name="daemon", executable=NIGHTSHIFTD):
        folder = self.folder / name
        folder.mkdir(exist_ok=True)
        daemon = Daemon(folder, *options, executable=executable)
        self.addCleanup(daemon.close)
        return daemon

    def run_job(self, daemon, rows, *options, exit_code=0, name="job"):
        """Runs rows through `nightshift run`; returns the result rows."""
        source = write_rows(self.folder / f"{name}.jsonl", rows)
        target = self.folder / f"{name}.results.jsonl"
        done = run_client("run", source, "--output", target, *options, address=daemon.address)
        self.assertEqual(done.returncode, exit_code, done.stderr + daemon.tail())
        return read_rows(target)

    def run_job_through_a_drain(self, daemon, rows, *options, result_options=()):
        """Drains and starts the daemon once some of the rows are done; returns the result rows."""
        source = write_rows(self.folder / "interrupted.jsonl", rows)
        job = run_client("submit", source, *options, address=daemon.address).stdout.strip()
        follower = start_client("results", job, "--follow", address=daemon.address)
        self.addCleanup(follower.kill)
        self.assertTrue(follower.stdout.readline())  # mid-job: something is published
        self.assertEqual(daemon.drain(), 0)
        daemon.start()
        self.assertEqual(run_client("wait", job, address=daemon.address).returncode, 0)
        target = self.folder / "interrupted.results.jsonl"
        run_client("results", job, *result_options, "--output", target, address=daemon.address)
        follower.kill()
        follower.communicate()
        return read_rows(target)
