#!/usr/bin/env python3
"""The public faults of gRPC 1.51, each tried on a real daemon that anybody who reaches it could try them
on: after each attack new clients are answered, and memory stays bounded."""

import socket
import struct
import unittest
import zlib

import raw_grpc
from e2e_lib import FAKE_NIGHTSHIFTD, MIB, Daemon, EndToEndTest, run_client
from raw_grpc import DATA, HEADERS, SETTINGS, frame

CONTINUATION = 9
MORE_MIB = 96  # that an attack may cost; what is parsed at one time is bounded, not free
FRAME_BYTES = 16000
PATH = b"/nightshift.v1.JobService/ListJobs"


def literal(name, value):
    """A header that is never indexed, of any length."""
    return b"\x10" + number(len(name), 7) + name + number(len(value), 7) + value


def number(value, bits):
    """RFC 7541, 5.1."""
    most = (1 << bits) - 1
    if value < most:
        return bytes([value])
    value, encoded = value - most, bytes([most])
    while value > 127:
        encoded += bytes([value & 127 | 128])
        value >>= 7
    return encoded + bytes([value])


def call_headers(*more, te=b"trailers", scheme=b"http"):
    return b"".join(literal(*pair) for pair in (
        (b":method", b"POST"), (b":scheme", scheme), (b":path", PATH), (b":authority", b"local"),
        (b"content-type", b"application/grpc"), (b"te", te), *more))


class AttacksTest(EndToEndTest):
    def start(self, *options, descriptors=1024):
        folder = self.folder / "daemon"
        folder.mkdir()
        limit = ["sh", "-c", f'ulimit -n {descriptors}; exec "$@"', "sh"]
        self.server = Daemon(folder, *options, executable=FAKE_NIGHTSHIFTD, prefix=limit)
        self.addCleanup(self.server.close)
        self.server.start()
        self.path = self.server.address.removeprefix("unix:")
        self.assert_answers()
        self.before = self.server.memory_bytes("VmRSS")
        self.server.reset_peak()

    def assert_answers(self):
        health = run_client("health", address=self.server.address)
        self.assertEqual(health.returncode, 0, health.stderr + self.server.tail())

    def assert_stands(self):
        """To be called when the attack is over."""
        self.assert_answers()
        listed = run_client("list", address=self.server.address)
        self.assertEqual(listed.returncode, 0, listed.stderr + self.server.tail())
        more = self.server.memory_bytes("VmHWM") - self.before
        self.assertLess(more, MORE_MIB * MIB, f"{more / MIB:.0f} MiB more at the peak")

    def connect(self, acknowledges=True):
        """A connection past its greeting. One that acknowledges no settings is held to none."""
        connection = raw_grpc.Connection(self.path)
        connection.socket.settimeout(10)
        while acknowledges and not connection.greeted:
            connection.take()
        return connection.socket

    @staticmethod
    def send(attacker, *frames):
        """False when the daemon has hung up."""
        try:
            for part in frames:
                attacker.sendall(part)
            return True
        except OSError:
            return False

    @staticmethod
    def read_to_end(attacker):
        """What the daemon says until it hangs up, or has said nothing for a second."""
        attacker.settimeout(1)
        said = b""
        try:
            while part := attacker.recv(1 << 16):
                said += part
        except OSError:
            pass
        attacker.close()
        return said

    def send_headers(self, block, acknowledges):
        """One call with this block of headers, however many frames it takes."""
        attacker = self.connect(acknowledges)
        parts = [block[i:i + FRAME_BYTES] for i in range(0, len(block), FRAME_BYTES)]
        frames = [frame(HEADERS if i == 0 else CONTINUATION, 4 if i == len(parts) - 1 else 0, 1, part)
                  for i, part in enumerate(parts)]
        self.send(attacker, *frames, frame(DATA, 1, 1, struct.pack(">BI", 0, 0)))
        return self.read_to_end(attacker)

    def test_a_crowd_of_connections_at_64_descriptors(self):
        # CVE-2023-4785: the accept that fails for want of a descriptor was the last one.
        self.start(descriptors=64)
        crowd = []
        for _ in range(200):
            attacker = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
            attacker.connect(self.path)
            crowd.append(attacker)
        self.server.wait_for_log("connections_refused")
        for attacker in crowd:
            attacker.close()
        self.assert_stands()

    def test_more_connections_than_are_allowed(self):
        self.start("--max-connections", "4")
        crowd = [socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) for _ in range(8)]
        for attacker in crowd:
            attacker.connect(self.path)
        self.server.wait_for_log("max_connections=4")
        refused = run_client("list", address=self.server.address)
        self.assertEqual(refused.returncode, 8, refused.stderr)
        for attacker in crowd:
            attacker.close()
        self.assert_stands()

    def test_a_small_message_that_becomes_large(self):
        # The receive limit does not hold what is decompressed: nothing is.
        self.start()
        packer = zlib.compressobj(9, zlib.DEFLATED, 31)
        bomb = b"".join(packer.compress(bytes(16 * MIB)) for _ in range(16)) + packer.flush()
        self.assertLess(len(bomb), MIB)
        for encoding in (b"gzip", b"deflate"):
            attacker = self.connect()
            body = struct.pack(">BI", 1, len(bomb)) + bomb
            frames = [frame(DATA, 0, 1, body[i:i + FRAME_BYTES])
                      for i in range(0, len(body), FRAME_BYTES)]
            self.send(attacker, frame(HEADERS, 4, 1, call_headers((b"grpc-encoding", encoding))),
                      *frames[:4], frame(DATA, 1, 1, b""))
            said = self.read_to_end(attacker)
            self.assertRegex(said, rb"(?s)grpc-status.{1,2}12|Compression|disabled")
            self.assert_stands()

    def test_large_odd_and_many_headers(self):
        # CVE-2023-1428 (te, :scheme), CVE-2023-32732 (-bin), CVE-2023-33953 (many).
        self.start()
        large = tuple((b"x-large-%d" % i, b"a" * 9000) for i in range(8))
        many = tuple((b"x-%d" % i, b"a") for i in range(20_000))
        for name, block in (("te", call_headers(*large[:1], te=b"odd")),
                            ("scheme", call_headers(*large[:1], scheme=b"odd")),
                            ("both", call_headers(*large, te=b"odd", scheme=b"odd")),
                            ("bin", call_headers((b"x-bin", b"!no base64!"))),
                            ("large", call_headers(*large)),
                            ("many", call_headers(*many))):
            for acknowledges in (True, False):
                with self.subTest(name, acknowledges=acknowledges):
                    self.send_headers(block, acknowledges)
                    self.assert_stands()

    def test_metadata_above_the_limit_is_refused(self):
        self.start("--max-metadata-bytes", "2kB")
        said = self.send_headers(call_headers((b"x", b"a" * 4000)), acknowledges=True)
        self.assertNotRegex(said, rb"(?s)grpc-status.0")
        self.assert_stands()

    def test_settings_that_never_end(self):
        self.start()
        attacker = self.connect()
        for _ in range(200):
            if not self.send(attacker, frame(SETTINGS, 0, 0, struct.pack(">HI", 4, 65535)) * 100):
                break
        attacker.close()
        self.assert_stands()


if __name__ == "__main__":
    unittest.main(verbosity=2)
