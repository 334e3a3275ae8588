#!/usr/bin/env python3
"""The status page of a busy daemon in a browser: a picture of it, to be looked at.

Keeps build/.../tests/e2e/statusz.png. Fails when a browser shows nothing, or not all of it.
"""

import pathlib
import re
import shutil
import struct
import subprocess
import sys
import tempfile
import urllib.request
import zlib

from e2e_lib import BUILD, FAKE_NIGHTSHIFTD, LIMIT_S, Daemon, run_client, write_rows

WIDTH, HEIGHT = 1200, 1700
PICTURE = BUILD / "tests" / "e2e" / "statusz.png"
# Beside names as people choose them, some that would be markup.
LABELS = ["owner=archive", "note=<script>document.body.innerHTML='owned'</script>", "note=<h1>x</h1> & \"more\""]


def pixels(path):
    """Width, height and the set of colours of a PNG of 8-bit RGB(A), without filters being undone."""
    data = path.read_bytes()
    if data[:8] != b"\x89PNG\r\n\x1a\n":
        raise AssertionError(f"{path} is no PNG")
    width, height = struct.unpack(">II", data[16:24])
    at, packed = 8, b""
    while at < len(data):
        length, kind = struct.unpack(">I4s", data[at:at + 8])
        if kind == b"IDAT":
            packed += data[at + 8:at + 8 + length]
        at += 12 + length
    return width, height, len(set(zlib.decompress(packed)))


def start_jobs(folder, daemon):
    for i, label in enumerate(LABELS):
        rows = [{"id": str(row), "prompt": f"canary {row}", "max_tokens": 40} for row in range(3000)]
        source = write_rows(folder / f"job-{i}.jsonl", rows)
        options = ["--label", label] + (["--not-before", "2099-01-01T00:00:00Z"] if i == 2 else [])
        run_client("submit", source, *options, address=daemon.address).check_returncode()


def wait_for_results(daemon, url):
    """Until some rows have ended, so that there is progress to be shown."""
    for _ in range(100 * LIMIT_S):
        with urllib.request.urlopen(url + "/metrics", timeout=LIMIT_S) as answer:
            page = answer.read().decode()
        if float(re.search(r'^nightshift_requests_total\{outcome="succeeded"\} (\S+)', page, re.MULTILINE)[1]) > 0:
            return
    raise AssertionError("no row has ended:\n" + daemon.tail())


def photograph(url, folder):
    PICTURE.parent.mkdir(parents=True, exist_ok=True)
    PICTURE.unlink(missing_ok=True)
    done = subprocess.run(
        ["chromium", "--headless=new", "--no-sandbox", "--disable-gpu", "--hide-scrollbars",
         f"--user-data-dir={folder}/browser", f"--window-size={WIDTH},{HEIGHT}",
         f"--screenshot={PICTURE}", url], capture_output=True, text=True, timeout=LIMIT_S, check=False)
    if not PICTURE.exists():
        raise AssertionError(f"no picture from chromium, exit code {done.returncode}:\n{done.stderr[-2000:]}")


def main():
    if shutil.which("chromium") is None:
        print("SKIPPED: chromium is not here: apt-get install chromium")
        return
    with tempfile.TemporaryDirectory(prefix="nightshift-pages-") as scratch:
        folder = pathlib.Path(scratch)
        daemon = Daemon(folder, "--http-listen", "127.0.0.1:0", executable=FAKE_NIGHTSHIFTD).start()
        try:
            url = re.search(r"listening address=(http://\S+)", daemon.log_of_this_start())[1]
            start_jobs(folder, daemon)
            wait_for_results(daemon, url)
            daemon.kill_engine()
            daemon.wait_for_log("sweep_failed")
            with urllib.request.urlopen(url + "/statusz", timeout=LIMIT_S) as answer:
                page = answer.read().decode()
            for hostile in ("<script", "<h1>x", "canary"):
                assert hostile not in page, f"{hostile} is on the page"
            photograph(url + "/statusz", folder)
        finally:
            daemon.close()
    width, height, values = pixels(PICTURE)
    assert (width, height) == (WIDTH, HEIGHT), (width, height)
    assert values > 100, f"only {values} values of bytes in the picture: is it blank?"
    print(f"{PICTURE}: {width} x {height}; look at it")


if __name__ == "__main__":
    sys.exit(main())
