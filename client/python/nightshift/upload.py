"""The input of a job: written to a file first, because its digest names the submission."""

from __future__ import annotations

import hashlib
import json
import os
import tempfile
import uuid
from typing import IO, Iterable, Iterator, Mapping, Optional, Union

from crc32c import crc32c

from nightshift.v1 import jobs_pb2 as pb

Request = Union[Mapping, pb.InferenceRequest]

_CHUNK_BYTES = 256 << 10
# UUIDv5 of "nightshift.v1" in the namespace of domain names, as the command line has it.
_NAMESPACE = uuid.UUID("25f329b3-5b80-5e82-a573-2857ea4ebfcc")


class Input:
    """The bytes of a job's input, with their digest. Closes its file with ``close``."""

    def __init__(self, stream: IO[bytes], input_format: pb.InputFormat) -> None:
        self._stream = stream
        self.format = input_format
        digest = hashlib.sha256()
        stream.seek(0)
        self.size = 0
        while data := stream.read(_CHUNK_BYTES):
            digest.update(data)
            self.size += len(data)
        self.sha256 = digest.digest()

    def close(self) -> None:
        self._stream.close()

    def parts(self, header: pb.SubmitJobStreamRequest.Header) -> Iterator[pb.SubmitJobStreamRequest]:
        """What SubmitJobStream takes, from ``header.resume_offset`` on."""
        yield pb.SubmitJobStreamRequest(header=header)
        position = header.resume_offset
        self._stream.seek(position)
        while data := self._stream.read(_CHUNK_BYTES):
            chunk = pb.SubmitJobStreamRequest.Chunk(
                offset=position, data=data, crc32c=crc32c(data))
            yield pb.SubmitJobStreamRequest(chunk=chunk)
            position += len(data)
        finish = pb.SubmitJobStreamRequest.Finish(total_bytes=self.size, sha256=self.sha256)
        yield pb.SubmitJobStreamRequest(finish=finish)


def input_of(requests: Union[str, os.PathLike, Iterable[Request]]) -> Input:
    """A JSONL file as it is, or rows (mappings) or messages, one at a time, in a temporary file.

    Raises TypeError for anything else, and for rows mixed with messages.
    """
    if isinstance(requests, (str, os.PathLike)):
        return Input(open(requests, "rb"), pb.INPUT_FORMAT_JSONL)
    stream = tempfile.TemporaryFile()
    try:
        return Input(stream, _write(requests, stream))
    except BaseException:
        stream.close()
        raise


def _write(requests: Iterable[Request], stream: IO[bytes]) -> pb.InputFormat:
    formats = set()
    for index, request in enumerate(requests):
        if isinstance(request, pb.InferenceRequest):
            data = request.SerializeToString()
            stream.write(_varint(len(data)) + data)
            formats.add(pb.INPUT_FORMAT_PROTO)
        elif isinstance(request, Mapping):
            stream.write(json.dumps(request, ensure_ascii=False).encode() + b"\n")
            formats.add(pb.INPUT_FORMAT_JSONL)
        else:
            raise TypeError(f"request {index} is {type(request).__name__}, must be a mapping, as a "
                            "line of JSONL, or an InferenceRequest")
        if len(formats) > 1:
            raise TypeError(f"request {index} is {type(request).__name__}, those before it are not: "
                            "a job has mappings or InferenceRequests, not both")
    return formats.pop() if formats else pb.INPUT_FORMAT_JSONL


def _varint(number: int) -> bytes:
    encoded = bytearray()
    while number >= 0x80:
        encoded.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes(encoded + bytearray([number]))


def spec_of(spec: Optional[pb.JobSpec]) -> pb.JobSpec:
    """A copy of the spec in the form in which the command line sends it: the same options are the
    same bytes, by which the daemon knows that a submission is one that it has."""
    copy = pb.JobSpec()
    if spec is not None:
        copy.CopyFrom(spec)
    copy.sampling.SetInParent()
    return copy


def request_id_of(sha256: bytes, spec: pb.JobSpec, run_key: str) -> str:
    """The name of a submission: the same for the same input, spec (of spec_of) and run key.

    The command line names its submissions in the same way, so that each attaches to the other's
    job.
    """
    spec_bytes = spec.SerializeToString(deterministic=True)
    name = sha256 + f"{len(spec_bytes)}:".encode() + spec_bytes + run_key.encode()
    digest = hashlib.sha1(_NAMESPACE.bytes + name).digest()
    return str(uuid.UUID(bytes=digest[:16], version=5))
