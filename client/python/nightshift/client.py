"""The client: submit requests, follow jobs, read each result once."""

from __future__ import annotations

import os
import time
from typing import Iterable, Iterator, Optional, Union

import grpc

from nightshift.connection import (Patience, default_address, file_of, metadata_of,
                                   open_channel)
from nightshift.upload import Request, input_of, request_id_of, spec_of
from nightshift.v1 import jobs_pb2 as pb
from nightshift.v1 import jobs_pb2_grpc

_TIMEOUT_S = 30.0
# The server checks every line and syncs before it answers.
_UPLOAD_TIMEOUT_S = 600.0
_SLOWEST_BYTES_PER_S = 1 << 20
# A stream is opened anew after this time, so that a dead one is not waited for.
_STREAM_TIMEOUT_S = 600.0
_LONGEST_WAIT_S = 60


def has_ended(state: int) -> bool:
    """Whether a job in this state (``job.state``) has no more results to come."""
    return state >= pb.JOB_STATE_SUCCEEDED


class Client:
    """A connection to one daemon.

    A daemon that is away for a while, because it restarts or was killed, is waited for
    ``patience_s`` seconds; what it refuses raises ``grpc.RpcError`` at once, whose ``code()`` and
    ``details()`` say why. May be used by several threads.
    """

    def __init__(self, address: Optional[str] = None, *, token: Optional[str] = None,
                 ca: Optional[bytes] = None, certificate: Optional[bytes] = None,
                 key: Optional[bytes] = None, patience_s: float = 600.0) -> None:
        """Connects when the first call is made.

        ``address``: ``unix:PATH`` or ``HOST:PORT``. ``token`` says who calls. ``ca`` (PEM) signs the
        daemon's certificate and makes the connection TLS, which one to another machine always is;
        ``certificate`` and ``key`` (PEM) are shown to a daemon that asks for them. What is None is
        taken from where the command line takes it: NIGHTSHIFT_ADDRESS, NIGHTSHIFT_TOKEN_FILE,
        NIGHTSHIFT_CA, NIGHTSHIFT_CLIENT_CERT, NIGHTSHIFT_CLIENT_KEY. Raises ValueError for a
        certificate without its key, OSError for a file that cannot be read.
        """
        self.address = address or default_address()
        if token is None:
            token = (file_of("NIGHTSHIFT_TOKEN_FILE") or b"").decode() or None
        self._metadata = metadata_of(token)
        self._channel = open_channel(
            self.address, ca or file_of("NIGHTSHIFT_CA"),
            certificate or file_of("NIGHTSHIFT_CLIENT_CERT"), key or file_of("NIGHTSHIFT_CLIENT_KEY"))
        self._patience_s = patience_s
        #: Every call of the job service, for what has no method here.
        self.stub = jobs_pb2_grpc.JobServiceStub(self._channel)

    def close(self) -> None:
        self._channel.close()

    def __enter__(self) -> "Client":
        return self

    def __exit__(self, *unused) -> None:
        self.close()

    def submit(self, requests: Union[str, os.PathLike, Iterable[Request]],
               spec: Optional[pb.JobSpec] = None, *, job_id: str = "", run_key: str = "",
               request_id: str = "") -> pb.Job:
        """Submits requests as one job and returns it once it is durable.

        ``requests``: a JSONL file, or an iterable of rows as in such a file (mappings) or of
        InferenceRequest messages; it is read once and kept on disk meanwhile. ``spec``: model,
        sampling defaults and more. The same requests, spec and ``run_key`` are the same job: a
        program that starts again, and ``nightshift run`` of the same file, attach to it. A
        ``request_id`` (a UUID) of one's own takes the place of that rule.
        """
        job_spec = spec_of(spec)
        source = input_of(requests)
        try:
            header = pb.SubmitJobStreamRequest.Header(
                job_id=job_id, spec=job_spec, format=source.format,
                request_id=request_id or request_id_of(source.sha256, job_spec, run_key))
            timeout_s = _UPLOAD_TIMEOUT_S + source.size / _SLOWEST_BYTES_PER_S
            return self._patience().call(
                lambda: self.stub.SubmitJobStream(source.parts(self._resumed(header)),
                                                  timeout=timeout_s, metadata=self._metadata))
        finally:
            source.close()

    def job(self, name: str) -> pb.Job:
        """The job as it is now. ``name``: "jobs/ID" or "ID"."""
        return self._call(self.stub.GetJob, pb.GetJobRequest(name=_job_name(name)))

    def jobs(self, state: pb.JobState = pb.JOB_STATE_UNSPECIFIED, label: str = "") -> Iterator[pb.Job]:
        """All jobs, or those in a state or with a label ("KEY" or "KEY=VALUE"), newest first."""
        request = pb.ListJobsRequest(state=state, label=label)
        while True:
            page = self._call(self.stub.ListJobs, request)
            yield from page.jobs
            if not page.next_page_token:
                return
            request.page_token = page.next_page_token

    def wait(self, name: str, timeout_s: Optional[float] = None) -> pb.Job:
        """The job once it has ended. Raises TimeoutError when it has not in ``timeout_s``."""
        give_up = None if timeout_s is None else time.monotonic() + timeout_s
        while True:
            left_s = float(_LONGEST_WAIT_S) if give_up is None else give_up - time.monotonic()
            request = pb.WaitJobRequest(name=_job_name(name))
            request.timeout.FromMilliseconds(int(1000 * max(0.001, min(left_s, _LONGEST_WAIT_S))))
            job = self._call(self.stub.WaitJob, request, _TIMEOUT_S + _LONGEST_WAIT_S)
            if has_ended(job.state):
                return job
            if give_up is not None and time.monotonic() >= give_up:
                done = job.counts.total - job.counts.pending - job.counts.running
                raise TimeoutError(f"{job.name} has not ended in {timeout_s} s: {done} of "
                                   f"{job.counts.total} requests are done")

    def cancel(self, name: str) -> pb.Job:
        """Ends the job; what has finished stays. Also of one that is cancelled already."""
        return self._call(self.stub.CancelJob, pb.CancelJobRequest(name=_job_name(name)))

    def results(self, name: str, *, after_seq: int = 0, follow: bool = True) -> Iterator[pb.Result]:
        """Each result of the job once, in the order in which they finished.

        Lives through lost connections and restarts of the daemon. A program that keeps the ``seq``
        of the last result that it has processed goes on with ``after_seq``. Without ``follow`` it
        ends with what there is; with it, when the job has ended.
        """
        patience = self._patience()
        last_seq = after_seq
        while True:
            try:
                for batch in self._batches(_job_name(name), last_seq, follow):
                    patience.progressed()
                    for result in batch.results:
                        last_seq = result.seq
                        yield result
                    if batch.HasField("end") and has_ended(batch.end.state):
                        return
                if not follow:
                    return
            except grpc.RpcError as error:
                if error.code() != grpc.StatusCode.DEADLINE_EXCEEDED:
                    patience.bear(error)

    def _batches(self, name: str, last_seq: int, follow: bool) -> Iterator[pb.ResultBatch]:
        """One stream of what follows last_seq without a gap; what is missing is asked for again."""
        request = pb.StreamResultsRequest(name=name, after_seq=last_seq, follow=follow)
        stream = self.stub.StreamResults(request, timeout=_STREAM_TIMEOUT_S,
                                         metadata=self._metadata)
        try:
            for batch in stream:
                new = [result for result in batch.results if result.seq > last_seq]
                if [result.seq for result in new] != list(
                        range(last_seq + 1, last_seq + 1 + len(new))):
                    return
                last_seq += len(new)
                del batch.results[:len(batch.results) - len(new)]
                yield batch
        finally:
            stream.cancel()

    def _patience(self) -> Patience:
        return Patience(self._patience_s)

    def _call(self, method, request, timeout_s: float = _TIMEOUT_S):
        return self._patience().call(
            lambda: method(request, timeout=timeout_s, metadata=self._metadata))

    def _resumed(self, header: pb.SubmitJobStreamRequest.Header
                 ) -> pb.SubmitJobStreamRequest.Header:
        """The header that goes on where an upload that broke off has ended."""
        request = pb.GetUploadStatusRequest(request_id=header.request_id)
        try:
            status = self.stub.GetUploadStatus(request, timeout=_TIMEOUT_S, metadata=self._metadata)
            header.resume_offset = 0 if status.complete else status.committed_bytes
        except grpc.RpcError as error:
            if error.code() != grpc.StatusCode.NOT_FOUND:
                raise
            header.resume_offset = 0
        return header


def _job_name(name: str) -> str:
    return name if name.startswith("jobs/") else f"jobs/{name}"
