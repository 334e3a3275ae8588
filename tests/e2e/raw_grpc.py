"""gRPC by hand over a Unix socket: just enough of HTTP/2 for thousands of clients that are idle,
wait, or do not read. Sources: RFC 9113 (frames), RFC 7541 (headers, literals only), gRPC's
PROTOCOL-HTTP2.md (messages).
"""

import selectors
import socket
import struct
import time

DATA, HEADERS, RST_STREAM, SETTINGS, PING, GOAWAY = 0, 1, 3, 4, 6, 7
ACK, END_STREAM, END_HEADERS = 1, 1, 4
PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"


def frame(kind, flags, stream, payload=b""):
    return struct.pack(">I", len(payload))[1:] + struct.pack(">BBI", kind, flags, stream) + payload


def literal(name, value):
    """A header that is never indexed, as plain bytes; both parts below 127 bytes."""
    return b"\x10" + bytes([len(name)]) + name + bytes([len(value)]) + value


def headers(path):
    return b"".join(literal(*pair) for pair in (
        (b":method", b"POST"), (b":scheme", b"http"), (b":path", path), (b":authority", b"local"),
        (b"content-type", b"application/grpc"), (b"te", b"trailers")))


def varint(number):
    encoded = b""
    while number > 127:
        encoded += bytes([number & 127 | 128])
        number >>= 7
    return encoded + bytes([number])


def text_field(number, text):
    return varint(number << 3 | 2) + varint(len(text)) + text.encode()


class Connection:
    """One client. `greeted`: the server has sent its settings; `answered`: streams on which a
    message came; `ended`: those that have ended."""

    def __init__(self, path):
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.socket.connect(path)
        self.socket.sendall(PREFACE + frame(SETTINGS, 0, 0))
        self.greeted, self.is_open, self.answered, self.ended = False, True, set(), set()
        self._next_stream, self._received = 1, b""

    def call(self, method, message):
        """Begins a call of JobService; returns its stream."""
        stream, self._next_stream = self._next_stream, self._next_stream + 2
        path = b"/nightshift.v1.JobService/" + method.encode()
        body = struct.pack(">BI", 0, len(message)) + message
        self.socket.sendall(frame(HEADERS, END_HEADERS, stream, headers(path)) +
                            frame(DATA, END_STREAM, stream, body))
        return stream

    def take(self):
        """Takes what has come and answers what must be: settings and pings. Windows never grow, so
        that a call of long answers is a reader that has stopped."""
        received = self.socket.recv(1 << 16)
        self.is_open = bool(received)
        self._received += received
        while len(self._received) >= 9:
            size = int.from_bytes(self._received[:3], "big")
            if len(self._received) < 9 + size:
                return
            kind, flags, stream = struct.unpack(">BBI", self._received[3:9])
            payload, self._received = self._received[9:9 + size], self._received[9 + size:]
            self._answer(kind, flags, stream, payload)

    def _answer(self, kind, flags, stream, payload):
        if kind in (SETTINGS, PING) and not flags & ACK:
            self.greeted = True
            self.socket.sendall(frame(kind, ACK, 0, payload if kind == PING else b""))
        elif kind == DATA:
            self.answered.add(stream)
        elif kind == GOAWAY:
            self.is_open = False
        if kind == RST_STREAM or kind == HEADERS and flags & END_STREAM:
            self.ended.add(stream)


class Crowd:
    """Many connections, served by one thread."""

    def __init__(self, path):
        self.path, self.connections = path, []
        self._selector = selectors.DefaultSelector()

    def add(self, count):
        added = [Connection(self.path) for _ in range(count)]
        for connection in added:
            self._selector.register(connection.socket, selectors.EVENT_READ, connection)
        self.connections += added
        return added

    def serve(self, until, limit_s):
        """Answers what the server asks until `until()` or the limit; returns whether it came."""
        end = time.monotonic() + limit_s
        while not until():
            left = end - time.monotonic()
            if left <= 0:
                return False
            for key, _ in self._selector.select(timeout=min(left, 0.2)):
                key.data.take()
                if not key.data.is_open:
                    self._selector.unregister(key.fileobj)
        return True

    def close(self):
        for connection in self.connections:
            connection.socket.close()
        self._selector.close()
