"""Where the daemon is, who calls it, and patience with one that is away."""

import os
import pathlib
import time
from typing import Callable, List, Optional, Tuple, TypeVar

import grpc
from google.rpc import error_details_pb2, status_pb2

Answer = TypeVar("Answer")
Metadata = List[Tuple[str, str]]

# One result with long text and many log-probabilities can pass gRPC's 4 MiB.
_MAX_RECEIVE_BYTES = 256 << 20
_FIRST_PAUSE_S = 0.2
_LONGEST_PAUSE_S = 5.0

_CHANNEL_OPTIONS = [
    ("grpc.max_receive_message_length", _MAX_RECEIVE_BYTES),
    ("grpc.keepalive_time_ms", 60_000),
    ("grpc.keepalive_timeout_ms", 20_000),
    # A local daemon is back within seconds of a restart; gRPC's own pauses grow to two minutes.
    ("grpc.initial_reconnect_backoff_ms", 200),
    ("grpc.min_reconnect_backoff_ms", 5_000),
    ("grpc.max_reconnect_backoff_ms", 2_000),
    # No proxy of the environment gets to see the documents.
    ("grpc.enable_http_proxy", 0),
]


def default_address() -> str:
    """The address that the command line uses without ``--address``."""
    given = os.environ.get("NIGHTSHIFT_ADDRESS")
    if given:
        return given
    state = os.environ.get("NIGHTSHIFT_STATE_DIR")
    if not state:
        state_home, home = os.environ.get("XDG_STATE_HOME", ""), os.environ.get("HOME", "")
        if state_home.startswith("/"):
            state = f"{state_home}/nightshift"
        elif home.startswith("/"):
            state = f"{home}/.local/state/nightshift"
        else:
            state = "/var/lib/nightshift"
    return f"unix:{state}/nightshift.sock"


def _is_local(address: str) -> bool:
    host = address.rpartition(":")[0]
    return address.startswith("unix:") or host in ("localhost", "[::1]") or host.startswith("127.")


def open_channel(address: str, ca: Optional[bytes], certificate: Optional[bytes],
                 key: Optional[bytes]) -> grpc.Channel:
    """A channel; as with the command line, TLS where a CA is given, and to other machines always.

    Raises ValueError for a certificate without its key.
    """
    if (certificate is None) != (key is None):
        raise ValueError("certificate and key go together: one of them is missing")
    if address.startswith("unix:") or (ca is None and _is_local(address)):
        return grpc.insecure_channel(address, options=_CHANNEL_OPTIONS)
    credentials = grpc.ssl_channel_credentials(ca, key, certificate)
    return grpc.secure_channel(address, credentials, options=_CHANNEL_OPTIONS)


def metadata_of(token: Optional[str]) -> Metadata:
    """What says who calls."""
    return [] if token is None else [("authorization", f"Bearer {token.strip()}")]


def file_of(variable: str) -> Optional[bytes]:
    """The bytes of the file that an environment variable names; None when it names none."""
    path = os.environ.get(variable)
    return pathlib.Path(path).read_bytes() if path else None


def reason_of(error: grpc.RpcError) -> str:
    """What the daemon's error says to programs, such as "JOB_NOT_FOUND"; empty for one of gRPC's own."""
    for key, value in error.trailing_metadata() or ():
        if key == "grpc-status-details-bin":
            info = error_details_pb2.ErrorInfo()
            for detail in status_pb2.Status.FromString(value).details:
                if detail.Unpack(info):
                    return info.reason
    return ""


def is_transient(error: grpc.RpcError) -> bool:
    """Whether the same call may work later: the daemon is away, starting or stopping.

    One that an administrator has drained stays so until that is undone.
    """
    code = error.code()
    if reason_of(error) == "SERVER_DRAINED":
        return False
    if code in (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.CANCELLED, grpc.StatusCode.ABORTED):
        return True
    return code == grpc.StatusCode.INTERNAL and "RST_STREAM" in (error.details() or "")


class Patience:
    """Pauses between attempts; gives up after a time without progress."""

    def __init__(self, patience_s: float) -> None:
        self._patience_s = patience_s
        self.progressed()

    def progressed(self) -> None:
        self._give_up = time.monotonic() + self._patience_s
        self._pause_s = _FIRST_PAUSE_S

    def bear(self, error: grpc.RpcError) -> None:
        """Returns after a pause, or raises what cannot be helped by waiting."""
        if not is_transient(error) or time.monotonic() >= self._give_up:
            raise error
        time.sleep(self._pause_s)
        self._pause_s = min(2 * self._pause_s, _LONGEST_PAUSE_S)

    def call(self, attempt: Callable[[], Answer]) -> Answer:
        """The answer of the first attempt that gets one."""
        while True:
            try:
                return attempt()
            except grpc.RpcError as error:
                self.bear(error)
