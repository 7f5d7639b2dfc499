"""Run jobs on SageMaker with boto3, or `aws` where boto3 is not installed. A job's name is of one run."""

import json
import shutil
import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from rdma_images.core.plain import plain
from rdma_images.jobs.run.command import output
from rdma_images.jobs.run.runner import CommandError, JobPhase, JobState, Submission
from rdma_images.jobs.write import work

STREAMS = "/aws/sagemaker/TrainingJobs"
WAITING = (
    "Starting",
    "Pending",
    "LaunchingMLInstances",
    "PreparingTrainingStack",
    "Downloading",
    "DownloadingTrainingImage",
)
ENDED: dict[str, JobPhase] = {"Completed": "succeeded", "Failed": "failed", "Stopped": "failed"}
ApiResponse = dict[str, Any]  # of the API


class SageMaker:
    """A training job."""

    def __init__(self, submission: Submission) -> None:
        self._submission = submission

    def submit(self) -> None:
        """Upload the code, and send request.json under this run's name."""
        if self._submission.job.work.code:
            self._upload(Path(self._submission.job.work.code.folder))
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
        """Write the hosts' streams in CloudWatch, and NCCL's logs in what the job left in S3."""
        request = {"logGroupName": STREAMS, "logStreamNamePrefix": f"{self._submission.name}/"}
        for stream in self._call("logs", "describe-log-streams", request).get("logStreams", ()):
            name = stream["logStreamName"]
            lines = "".join(f"{line}\n" for line in self._lines(name))
            (self._submission.logs / f"{name.rpartition('/')[2]}.log").write_text(lines, encoding="utf-8")
        self._save_output()

    def delete(self) -> None:
        """Stop the job; SageMaker keeps its record and nothing of it runs on."""
        try:
            job = self._describe()
        except CommandError as error:
            if "not found" in str(error) or "Could not find" in str(error):
                return
            raise
        if job["TrainingJobStatus"] == "InProgress":
            self._call("sagemaker", "stop-training-job", {"TrainingJobName": self._submission.name})

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

    def _save_output(self) -> None:
        """Write the logs in output.tar.gz, where the job came far enough to leave one."""
        bucket, _, prefix = self._submission.job.parameters["output"].removeprefix("s3://").partition("/")
        key = "/".join(filter(None, (prefix.strip("/"), self._submission.name, "output/output.tar.gz")))
        listing = self._call("s3api", "list-objects-v2", {"Bucket": bucket, "Prefix": key})
        if not listing.get("Contents"):
            return
        packed = self._submission.logs / "output.tar.gz"
        if client := self._client("s3"):
            client.download_file(bucket, key, str(packed))
        else:
            output(["aws", "s3", "cp", f"s3://{bucket}/{key}", packed, "--region", self._region], limit=600)
        with tarfile.open(packed) as tar:
            for member in tar:
                if member.name.endswith(".log") and (content := tar.extractfile(member)):
                    with (self._submission.logs / member.name.rpartition("/")[2]).open("wb") as log:
                        shutil.copyfileobj(content, log)
        packed.unlink()

    def _upload(self, folder: Path) -> None:
        """Copy the code, without hidden files, to where request.json says that it is."""
        bucket, _, prefix = self._submission.job.parameters["output"].removeprefix("s3://").partition("/")
        key = "/".join(filter(None, (prefix.strip("/"), self._submission.job.name, "code")))
        if not (client := self._client("s3")):
            exclusions = ("--exclude", ".*", "--exclude", "*/.*", "--exclude", "*__pycache__/*")
            target = f"s3://{bucket}/{key}/"
            output(["aws", "s3", "sync", folder, target, "--delete", *exclusions, "--region", self._region], limit=600)
            return
        for path in work.code_entries(folder):
            if (folder / path).is_file():
                client.upload_file(str(folder / path), bucket, f"{key}/{path}")

    @property
    def _region(self) -> str:
        return self._submission.job.parameters["region"]

    def _client(self, service: str) -> Any:
        """Return boto3's client, None where boto3 is not installed."""
        try:
            import boto3
        except ModuleNotFoundError:
            return None
        factory: Any = boto3.client  # one of hundreds of types, by the name
        return factory("s3" if service == "s3api" else service, region_name=self._region)

    def _call(self, service: str, operation: str, request: ApiResponse) -> ApiResponse:
        """Call the API once. Raises CommandError with its words where that fails."""
        client = self._client(service)
        if client is None:
            command = ["aws", service, operation, "--region", self._region, "--output", "json"]
            parsed: ApiResponse = json.loads(output([*command, "--cli-input-json", json.dumps(request)]) or "{}")
            return parsed
        from botocore.exceptions import BotoCoreError, ClientError

        try:
            response: ApiResponse = getattr(client, operation.replace("-", "_"))(**request)
        except (BotoCoreError, ClientError) as error:
            raise CommandError(f"aws {service} {operation}: {plain(str(error))}") from None
        return response
