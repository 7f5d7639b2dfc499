"""Run jobs on SageMaker with boto3. A job's name is of one run."""

import json
import time
from collections.abc import Iterator
from typing import Any

from rdma_images.core.plain import plain
from rdma_images.jobs.run.command import CommandError, ProgramMissingError
from rdma_images.jobs.run.runner import JobPhase, JobState, Submission
from rdma_images.jobs.write.job import JobFolder

STREAMS = "/aws/sagemaker/TrainingJobs"
WAITING = (
    *("Starting", "Pending", "LaunchingMLInstances", "PreparingTrainingStack"),
    *("Downloading", "DownloadingTrainingImage"),
)
STOP_SECONDS = 600.0  # until a stopped job has ended: its containers have two minutes, then its output is uploaded
POLL_SECONDS = 2.0
ENDED: dict[str, JobPhase] = {"Completed": "succeeded", "Failed": "failed", "Stopped": "failed"}
ApiResponse = dict[str, Any]  # of the API


class SageMaker:
    """A training job."""

    def __init__(self, submission: Submission) -> None:
        self._submission = submission

    def submit(self) -> None:
        """Upload what the containers see, and send request.json under this run's name."""
        for folder in self._submission.job.folders:
            self._upload(folder)
        request = json.loads(self._submission.file.read_text(encoding="utf-8"))
        self._call("sagemaker", "create-training-job", {**request, "TrainingJobName": self._submission.name})

    def state(self) -> JobState:
        """Return the secondary status and its message."""
        job = self._describe()
        status, detail = job["TrainingJobStatus"], job.get("SecondaryStatus", "")
        messages = [transition.get("StatusMessage", "") for transition in job.get("SecondaryStatusTransitions", ())]
        reason = plain(": ".join(filter(None, (detail, job.get("FailureReason") or (messages or [""])[-1]))))
        if status in ENDED:
            return JobState(ENDED[status], "" if status == "Completed" else f"{status}: {reason}")
        return JobState("waiting" if detail in WAITING else "running", reason)

    def collect(self) -> None:
        """Write the hosts' streams in CloudWatch."""
        request = {"logGroupName": STREAMS, "logStreamNamePrefix": f"{self._submission.name}/"}
        page: ApiResponse = {"nextToken": ""}
        while "nextToken" in page:  # a page has 50 streams at most
            page = self._call("logs", "describe-log-streams", request)
            for name in (stream["logStreamName"] for stream in page.get("logStreams", ())):
                lines = "".join(f"{line}\n" for line in self._lines(name))
                (self._submission.logs / f"{name.rpartition('/')[2]}.log").write_text(lines, encoding="utf-8")
            request["nextToken"] = page.get("nextToken", "")

    def delete(self) -> None:
        """Stop the job, and wait until nothing of it runs; SageMaker keeps its record."""
        name, deadline = self._submission.name, time.monotonic() + STOP_SECONDS
        try:
            while (status := self._describe()["TrainingJobStatus"]) in ("InProgress", "Stopping"):
                if status == "InProgress":
                    self._call("sagemaker", "stop-training-job", {"TrainingJobName": name})
                if time.monotonic() > deadline:
                    raise CommandError(
                        f"{name} is {status}\naws sagemaker describe-training-job says what it waits for"
                    )
                time.sleep(POLL_SECONDS)
        except CommandError as error:
            if "not found" not in str(error) and "Could not find" not in str(error):
                raise

    def _describe(self) -> ApiResponse:
        return self._call("sagemaker", "describe-training-job", {"TrainingJobName": self._submission.name})

    def _lines(self, stream: str) -> Iterator[str]:
        """Yield the messages of a stream, up to the page whose token repeats."""
        request = {"logGroupName": STREAMS, "logStreamName": stream, "startFromHead": True}
        token = ""
        while True:
            page = self._call("logs", "get-log-events", {**request, **({"nextToken": token} if token else {})})
            yield from (event["message"] for event in page["events"])
            if page["nextForwardToken"] == token:
                return
            token = page["nextForwardToken"]

    def _upload(self, folder: JobFolder) -> None:
        """Copy a folder of the job to where request.json says that it is."""
        bucket, _, prefix = self._submission.job.parameters["output"].removeprefix("s3://").partition("/")
        key = "/".join(filter(None, (prefix.strip("/"), self._submission.job.name, folder.name)))
        source = self._submission.files.absolute() / folder.name
        client = self._client("s3")
        for path in folder.files:
            client.upload_file(str(source / path), bucket, f"{key}/{path}")

    @property
    def _region(self) -> str:
        return self._submission.job.parameters["region"]

    def _client(self, service: str) -> Any:
        """Return boto3's client. Raises ProgramMissingError where boto3 is not installed."""
        try:
            import boto3
        except ModuleNotFoundError:
            raise ProgramMissingError(
                "boto3 is not installed, and SageMaker's jobs are submitted with it\n"
                "install it beside this command: pip install 'rdma-images[ecr]'"
            ) from None
        factory: Any = boto3.client  # one of hundreds of types, by the name
        return factory(service, region_name=self._region)

    def _call(self, service: str, operation: str, request: ApiResponse) -> ApiResponse:
        """Call the API once. Raises CommandError with its words where that fails."""
        client = self._client(service)
        from botocore.exceptions import BotoCoreError, ClientError

        try:
            response: ApiResponse = getattr(client, operation.replace("-", "_"))(**request)
        except (BotoCoreError, ClientError) as error:
            raise CommandError(f"{service} {operation}: {plain(str(error))}") from None
        return response
