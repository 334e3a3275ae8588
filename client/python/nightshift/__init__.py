"""Client of Nightshift, a batch job server for large language models.

    import nightshift

    with nightshift.Client() as client:
        job = client.submit({"id": name, "prompt": text} for name, text in documents)
        for result in client.results(job.name):
            if result.HasField("error"):
                print(result.custom_id, "failed:", result.error.message)
            else:
                print(result.custom_id, result.completion.text.decode())

Jobs, results and specs are the messages of the API (``nightshift.v1.jobs_pb2``), whose fields
``proto/nightshift/v1/jobs.proto`` describes.
"""

from nightshift.client import Client, Request, has_ended
from nightshift.connection import default_address
from nightshift.v1.jobs_pb2 import InferenceRequest, Job, JobSpec, JobState, Result

__all__ = ["Client", "InferenceRequest", "Job", "JobSpec", "JobState", "Request", "Result",
           "default_address", "has_ended"]
