#!/usr/bin/env python3
"""What an administrator relies on: systemd is told, logs can be parsed, the shipped files fit the daemon."""

import json
import re
import select
import shutil
import subprocess
import tomllib
import unittest
import urllib.error
import urllib.request

from e2e_lib import (BUILD, FAKE_NIGHTSHIFTD, LIMIT_S, NIGHTSHIFTD, ROOT, EndToEndTest, client_environment,
                     run_client, start_client, write_rows)
from tls_test import SERVER_NAMES, Authority

DEPLOY = ROOT / "deploy"
DRAINED = "STATUS=drained: accepts and runs nothing until nightshift server drain --undo"
EVENT = re.compile(r"^[A-Za-z0-9_-]+$")


def rows(count):
    return [{"id": f"row-{i}", "prompt": f"document {i}", "max_tokens": 4} for i in range(count)]


def tool(name, package):
    """The path of a program that not every machine has; skips the test, and says why, where it is absent."""
    path = shutil.which(name)
    if path is None:
        raise unittest.SkipTest(f"{name} is not here: apt-get install {package}")
    return path


class OperationsTest(EndToEndTest):
    def http_url(self, daemon):
        return re.search(r"listening address=(http://\S+)", daemon.log_of_this_start())[1]

    def get(self, url):
        """Status and text of a page."""
        try:
            with urllib.request.urlopen(url, timeout=LIMIT_S) as answer:
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as error:
            return error.code, error.read().decode()

    def fake_daemon(self, *options, **named):
        return self.daemon("--http-listen", "127.0.0.1:0", *options,
                           executable=FAKE_NIGHTSHIFTD, **named)

    def notification(self, daemon):
        """The next message to systemd."""
        self.assertTrue(select.select([daemon._notify], [], [], LIMIT_S)[0], daemon.tail())
        return daemon._notify.recv(4096).decode().split("\n")

    def wait_for_notification(self, daemon, message):
        while message not in self.notification(daemon):
            pass

    def test_systemd_is_told_that_the_daemon_lives_and_ends(self):
        daemon = self.fake_daemon()
        daemon.launch({"WATCHDOG_USEC": "300000"})
        daemon.wait_ready()
        for _ in range(3):
            self.wait_for_notification(daemon, "WATCHDOG=1")
        daemon.terminate()
        self.wait_for_notification(daemon, "STOPPING=1")
        self.assertEqual(daemon.wait(), 0)

    def test_a_daemon_that_nobody_can_reach_is_not_called_alive(self):
        daemon = self.fake_daemon()
        daemon.launch({"WATCHDOG_USEC": "300000"})
        daemon.wait_ready()
        self.wait_for_notification(daemon, "WATCHDOG=1")
        (daemon.folder / "socket").unlink()
        daemon.wait_for_log("watchdog_withheld")
        self.assertIn(f"unix:{daemon.folder}/socket", daemon.log_of_this_start())

    def test_a_store_that_stands_still_is_not_called_alive(self):
        stall = self.folder / "stall"
        daemon = self.fake_daemon()
        daemon.launch({"WATCHDOG_USEC": "300000", "DISK_FAULTS_STALL": str(stall),
                       "DISK_FAULTS_FOLDER": str(daemon.folder / "state"),
                       "LD_PRELOAD": str(BUILD / "tests" / "support" / "libdisk_faults.so")})
        daemon.wait_ready()
        source = write_rows(self.folder / "rows.jsonl", rows(3))
        job = run_client("submit", source, "--not-before", "2099-01-01T00:00:00Z",
                         address=daemon.address).stdout.strip()
        stall.touch()
        client = start_client("pause", job, address=daemon.address)
        self.addCleanup(client.kill)
        daemon.wait_for_log("watchdog_withheld")
        self.assertIn("the store's thread does not take a write", daemon.log_of_this_start())
        while select.select([daemon._notify], [], [], 0)[0]:  # what was said before
            self.notification(daemon)
        stall.unlink()
        self.wait_for_notification(daemon, "WATCHDOG=1")
        _, said = client.communicate(timeout=LIMIT_S)
        self.assertEqual(client.returncode, 0, said)

    def test_json_logs_are_one_object_a_line_from_daemon_and_engine(self):
        daemon = self.fake_daemon("--log-format", "json").start()
        self.run_job(daemon, rows(20))
        daemon.kill_engine()
        self.assertEqual(daemon.drain(), 0)
        events = set()
        for line in daemon.log_of_this_start().splitlines():
            entry = json.loads(line)
            self.assertRegex(entry["time"], r"^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z$")
            self.assertIn(entry["level"], ("info", "warning", "error"))
            self.assertRegex(entry["event"], EVENT)
            events.add(entry["event"])
        self.assertLessEqual({"starting", "listening", "job_accepted", "model_loaded", "stopped"}, events)

    def test_the_status_page_shows_no_markup_of_callers(self):
        daemon = self.fake_daemon().start()
        hostile = "<script>alert('x')</script>"
        source = write_rows(self.folder / "rows.jsonl", rows(3))
        done = run_client("submit", source, "--label", f"note={hostile}", "--not-before",
                          "2099-01-01T00:00:00Z", address=daemon.address)
        self.assertEqual(done.returncode, 0, done.stderr)
        status, page = self.get(self.http_url(daemon) + "/statusz")
        self.assertEqual(status, 200)
        self.assertNotIn("<script", page)
        self.assertIn("note=&lt;script&gt;", page)
        self.assertNotIn("document 1", page)

    def test_a_drain_outlives_a_crash_and_everybody_is_told(self):
        daemon = self.fake_daemon().start()
        self.assertEqual(self.get(self.http_url(daemon) + "/readyz")[0], 200)
        source = write_rows(self.folder / "rows.jsonl", rows(3))
        self.assertEqual(run_client("server", "drain", address=daemon.address).returncode, 0)
        self.wait_for_notification(daemon, DRAINED)
        daemon.kill()
        daemon.launch()
        self.wait_for_notification(daemon, DRAINED)
        daemon.wait_ready()
        url = self.http_url(daemon)
        status, reasons = self.get(url + "/readyz")
        self.assertEqual(status, 503)
        self.assertIn("drain: the daemon is drained", reasons)
        self.assertEqual(self.get(url + "/livez"), (200, "ok\n"))
        self.assertIn("drained: nothing is accepted", self.get(url + "/statusz")[1])
        # Nobody waits for what a person must undo.
        for command in (["health"], ["run", source, "-o", self.folder / "out.jsonl"], ["submit", source]):
            refused = run_client(*command, address=daemon.address, limit_s=30)
            self.assertEqual(refused.returncode, 8, refused.stderr)
            self.assertIn("the daemon is drained", refused.stderr)
            self.assertIn("nightshift server drain --undo", refused.stderr)
            self.assertNotIn("does not answer", refused.stderr)
        told = run_client("server", "info", address=daemon.address).stdout
        self.assertRegex(told, r"state +drained")
        undone = run_client("server", "drain", "--undo", address=daemon.address)
        self.assertEqual(undone.returncode, 0, undone.stderr)
        self.wait_for_notification(daemon, "STATUS=accepting jobs")
        self.run_job(daemon, rows(3))

    def test_a_backup_is_checked_and_no_unclean_stop(self):
        daemon = self.fake_daemon().start()
        self.run_job(daemon, rows(5))
        copy = self.folder / "restored" / "state"
        copy.parent.mkdir()
        done = run_client("server", "backup", copy, address=daemon.address)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn(f"store_check reason=backup path={copy}.part/store.sqlite",
                      daemon.log_of_this_start())
        restored = self.fake_daemon(name="restored").start()
        listed = run_client("list", address=restored.address).stdout
        self.assertIn("succeeded", listed)
        for log in (daemon, restored):
            self.assertNotIn("unclean_stop", log.log_of_this_start())

    def test_alerts_and_dashboard_name_metrics_that_there_are(self):
        certificate, key = Authority(self.folder, "ca").issue("served", SERVER_NAMES)
        daemon = self.fake_daemon("--tls-cert", certificate, "--tls-key", key).start()
        self.run_job(daemon, rows(20))
        _, page = self.get(self.http_url(daemon) + "/metrics")
        exported = set(re.findall(r"^(nightshift_\w+)", page, re.MULTILINE))
        for path in sorted((DEPLOY / "monitoring").iterdir()):
            named = set(re.findall(r"nightshift_\w+", path.read_text(encoding="utf-8")))
            self.assertTrue(named, path)
            self.assertEqual(named - exported, set(), f"{path} names what the daemon does not export")

    def test_each_alert_has_its_section_in_the_run_book(self):
        rules = (DEPLOY / "monitoring" / "alerts.yml").read_text(encoding="utf-8")
        book = (DEPLOY / "RUNBOOK.md").read_text(encoding="utf-8")
        alerts = re.findall(r"alert: (\w+)", rules)
        self.assertGreater(len(alerts), 8)
        for alert in alerts:
            self.assertIn(f"### {alert}\n", book)
            self.assertIn(f"RUNBOOK.md#{alert.lower()}", rules)

    def test_promtool_takes_the_rules_and_their_tests(self):
        promtool = tool("promtool", "prometheus")
        for arguments in (["check", "rules", "alerts.yml"], ["test", "rules", "alerts_test.yml"]):
            done = subprocess.run([promtool, *arguments], cwd=DEPLOY / "monitoring",
                                  capture_output=True, text=True, check=False)
            self.assertEqual(done.returncode, 0, done.stdout + done.stderr)

    def test_the_configuration_example_works_also_with_all_that_it_suggests(self):
        (self.folder / "models").mkdir()
        (self.folder / "spill").mkdir()
        example = (DEPLOY / "nightshiftd.toml").read_text(encoding="utf-8")
        suggested = re.sub(r"^# ([a-z-]+ = )", r"\1", example, flags=re.MULTILINE)
        self.assertGreater(len(tomllib.loads(suggested)), len(tomllib.loads(example)) + 5)
        for text in (example, suggested):
            config = self.folder / "nightshiftd.toml"
            config.write_text(text.replace("/var/lib/nightshift", str(self.folder))
                              .replace("/fast/disk", str(self.folder / "spill")), encoding="utf-8")
            done = subprocess.run([NIGHTSHIFTD, "--config", config, "--check-config"],
                                  env=client_environment(None), capture_output=True, text=True,
                                  check=False)
            self.assertEqual(done.returncode, 0, done.stderr)
            self.assertEqual(done.stdout, "options are valid\n")

    def test_a_seccomp_profile_gets_the_three_calls_of_io_uring_and_no_other(self):
        script = DEPLOY / "container" / "seccomp-io_uring"
        profile = self.folder / "profile.json"
        before = {"defaultAction": "SCMP_ACT_ERRNO", "syscalls": [{"names": ["read"], "action": "SCMP_ACT_ALLOW"}]}
        profile.write_text(json.dumps(before), encoding="utf-8")
        done = subprocess.run([script, profile], capture_output=True, text=True, check=True)
        after = json.loads(done.stdout)
        added = after["syscalls"].pop()
        self.assertEqual(after, before)
        self.assertEqual((sorted(added["names"]), added["action"]),
                         (["io_uring_enter", "io_uring_register", "io_uring_setup"], "SCMP_ACT_ALLOW"))
        for text in ("[]", "{}", "no json"):
            profile.write_text(text, encoding="utf-8")
            refused = subprocess.run([script, profile], capture_output=True, text=True, check=False)
            self.assertNotEqual(refused.returncode, 0)
            self.assertIn(f"{profile} is no seccomp profile", refused.stderr)

    def test_the_unit_is_valid_and_shut_in(self):
        analyze = tool("systemd-analyze", "systemd")
        unit = self.folder / "nightshiftd.service"
        text = (DEPLOY / "systemd" / "nightshiftd.service").read_text(encoding="utf-8")
        unit.write_text(text.replace("/usr/bin/nightshiftd", str(NIGHTSHIFTD)), encoding="utf-8")
        verified = subprocess.run([analyze, "verify", "--man=no", unit], capture_output=True,
                                  text=True, check=False)
        self.assertEqual((verified.returncode, verified.stderr), (0, ""))
        # Tenths of the exposure level: 2.0 of 10.
        secured = subprocess.run([analyze, "security", "--offline=yes", "--threshold=20",
                                  "--no-pager", unit], capture_output=True, text=True, check=False)
        self.assertEqual(secured.returncode, 0, secured.stdout[-300:] + secured.stderr)


if __name__ == "__main__":
    unittest.main()
