#!/usr/bin/env python3
"""The Debian packages from their making to their purge, in a Debian of their own (a chroot, as root).

cpack, lintian; install, nothing runs; configure, run the unit's command by hand as the unit's user; a job; upgrade from an
older version with its data; remove keeps the data, purge does not.
"""

import contextlib
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

from e2e_lib import BUILD, ROOT

ADDRESS = "unix:/run/nightshift/nightshift.sock"
OLD_VERSION = "0.0.9"
ENVIRONMENT = {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "DEBIAN_FRONTEND": "noninteractive",
               "LANG": "C.UTF-8", "HOME": "/tmp"}


def run(*command, **options):
    print("+", " ".join(map(str, command)), flush=True)
    done = subprocess.run([str(part) for part in command], text=True, stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, check=False, **options)
    if done.returncode != 0:
        raise AssertionError(f"exit code {done.returncode}:\n{done.stdout[-6000:]}")
    return done.stdout


def make_packages(folder, *options):
    run("cpack", "--config", BUILD / "CPackConfig.cmake", "-B", folder, *options)
    packages = sorted(folder.glob("*.deb"))
    assert len(packages) == 2, packages
    return packages


def check_with_lintian(packages):
    if shutil.which("lintian") is None:
        print("SKIPPED: lintian is not here: apt-get install lintian")
        return
    run("lintian", "--fail-on", "error", "--allow-root", *packages)


class Chroot:
    """A small Debian 12 that is gone at the end."""

    def __init__(self, folder):
        self.folder = folder.resolve()
        run("debootstrap", "--variant=minbase", "bookworm", folder)
        # As Debian's own builders do: nothing is started by installing.
        policy = folder / "usr/sbin/policy-rc.d"
        policy.write_text("#!/bin/sh\nexit 101\n")
        policy.chmod(0o755)
        for kind in ("proc", "dev"):
            run("mount", "--rbind" if kind == "dev" else "--bind", f"/{kind}", folder / kind)
            run("mount", "--make-rslave", folder / kind)
        for name in ("etc/resolv.conf", "etc/apt/apt.conf.d/99artifact-registry"):
            if pathlib.Path("/", name).exists():
                shutil.copy(pathlib.Path("/", name), folder / name)
        self.run("apt-get", "update")

    def run(self, *command, user=None):
        as_user = ["setpriv", f"--reuid={user}", f"--regid={user}", "--init-groups"] if user else []
        return run("chroot", self.folder, *as_user, *command,
                   env=ENVIRONMENT | {"NIGHTSHIFT_ADDRESS": ADDRESS})

    def install(self, packages):
        for package in packages:
            shutil.copy(package, self.folder / "tmp")
        self.run("apt-get", "install", "--yes", "--no-install-recommends",
                 *[f"/tmp/{package.name}" for package in packages])

    def has(self, path):
        return os.path.lexists(f"{self.folder}/{path}")

    def processes(self):
        """Those that run in it."""
        found = []
        for root in pathlib.Path("/proc").glob("[0-9]*/root"):
            with contextlib.suppress(OSError):  # it has ended
                if os.readlink(root) == str(self.folder):
                    found.append(root.parent.name)
        return found

    def close(self):
        for kind in ("proc", "dev"):
            subprocess.run(["umount", "--recursive", "--lazy", self.folder / kind], check=False)
        shutil.rmtree(self.folder, ignore_errors=True)


class Service:
    """The unit's ExecStart, run by hand as the unit's user, with the folders that systemd would make."""

    def __init__(self, chroot):
        unit = (chroot.folder / "lib/systemd/system/nightshiftd.service").read_text()
        command = re.search(r"^ExecStart=(.*)$", unit, re.MULTILINE)[1].split()
        chroot.run("install", "-d", "-o", "nightshift", "-g", "nightshift", "-m", "0750", "/run/nightshift")
        self.chroot = chroot
        self.process = subprocess.Popen(
            ["chroot", str(chroot.folder), "setpriv", "--reuid=nightshift", "--regid=nightshift",
             "--init-groups", *command], env=ENVIRONMENT, stderr=subprocess.PIPE, text=True)
        chroot.run("nightshift", "health", "--wait", "--timeout", "60s")

    def stop(self):
        self.process.terminate()
        log = self.process.communicate(timeout=120)[1]
        assert self.process.returncode == 0, log
        return log


def submit(chroot, name):
    """A job of token ids, through the packaged command line; its results."""
    rows = "".join(f'{{"id": "{name}-{i}", "prompt": [{i + 20}, {i + 21}], "max_tokens": 4}}\n'
                   for i in range(8))
    (chroot.folder / "tmp" / f"{name}.jsonl").write_text(rows)
    # As a member of the group, not as the daemon's user.
    chroot.run("nightshift", "run", f"/tmp/{name}.jsonl", "--output", f"/tmp/{name}.results", user="caller")
    return sorted((chroot.folder / "tmp" / f"{name}.results").read_text().splitlines())


def check_installed(chroot):
    for path in ("usr/bin/nightshiftd", "usr/bin/nightshift", "lib/systemd/system/nightshiftd.service",
                 "etc/nightshift/nightshiftd.toml", "usr/lib/sysusers.d/nightshift.conf",
                 "usr/share/doc/nightshiftd/RUNBOOK.md", "usr/share/nightshift/monitoring/alerts.yml"):
        assert chroot.has(path), path
    assert not chroot.has("etc/systemd/system/multi-user.target.wants/nightshiftd.service"), "it is enabled"
    assert not chroot.processes(), "something was started"
    # dpkg lists no file that is there and not as it was packed.
    assert chroot.run("dpkg", "--verify", "nightshiftd", "nightshift") == ""


def walk(scratch):
    old = make_packages(scratch / "old", "-D", f"CPACK_PACKAGE_VERSION={OLD_VERSION}")
    new = make_packages(scratch / "new")
    check_with_lintian(new)
    chroot = Chroot(scratch / "root")
    try:
        chroot.install(old)
        check_installed(chroot)
        chroot.run("useradd", "--groups", "nightshift", "caller")
        shutil.copytree(ROOT / "tests/data/tiny/llama", chroot.folder / "srv/tiny-llama")
        chroot.run("nightshift", "import", "/srv/tiny-llama", "--output",
                   "/var/lib/nightshift/models/tiny", user="nightshift")
        chroot.run("nightshiftd", "--config", "/etc/nightshift/nightshiftd.toml", "--check-config",
                   user="nightshift")
        config = chroot.folder / "etc/nightshift/nightshiftd.toml"
        config.write_text(config.read_text() + '\nmemory-budget = "256MiB"\n')

        service = Service(chroot)
        first = submit(chroot, "before")
        assert len(first) == 8, first
        service.stop()

        # As an upgrade of Debian would: the changed configuration stays.
        chroot.install(new)
        assert OLD_VERSION not in chroot.run("dpkg-query", "--show", "nightshiftd", "nightshift")
        assert "256MiB" in config.read_text()
        service = Service(chroot)
        assert submit(chroot, "before") == first, "the job of before is there, and its results are the same"
        listed = chroot.run("nightshift", "list", user="caller")
        assert listed.count("succeeded") == 1, listed
        submit(chroot, "after")
        service.stop()

        chroot.run("apt-get", "remove", "--yes", "nightshiftd", "nightshift")
        assert chroot.has("var/lib/nightshift/state") and chroot.has("etc/nightshift/nightshiftd.toml")
        chroot.run("apt-get", "purge", "--yes", "nightshiftd", "nightshift")
        for path in ("var/lib/nightshift", "etc/nightshift", "usr/bin/nightshiftd", "usr/share/nightshift",
                     "run/nightshift"):
            assert not chroot.has(path), f"{path} is left"
    finally:
        chroot.close()
    print("packages: made, installed, ran, upgraded, removed and purged")


def main():
    if os.geteuid() != 0 or shutil.which("debootstrap") is None:
        print("SKIPPED: needs root and debootstrap: apt-get install debootstrap")
        return
    with tempfile.TemporaryDirectory(prefix="nightshift-packages-") as scratch:
        walk(pathlib.Path(scratch))


if __name__ == "__main__":
    sys.exit(main())
