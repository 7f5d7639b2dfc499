"""SageMaker's CreateTrainingJob request, and Kubernetes objects in JSON."""

from collections.abc import Iterator
from typing import Any

from rdma_images.core import yaml_file
from rdma_images.jobs.check import kubernetes
from rdma_images.jobs.check.foreign_job import JobPart, LocatedText


def parts(data: object, text: str, name: str) -> Iterator[JobPart]:
    """Yield the parts of a JSON document; `text` is what lines are counted in."""
    if isinstance(data, dict) and "TrainingJobName" in data:
        yield _training_job(data, text, name)
    elif isinstance(data, dict) and "kind" in data:
        # JSON is YAML, and so are its lines.
        for document in yaml_file.documents(text, name):
            yield from kubernetes.parts(document)


def _training_job(data: dict[str, Any], text: str, name: str) -> JobPart:
    def word(section: str, key: str) -> LocatedText | None:
        inner = data.get(section)
        value = inner.get(key) if isinstance(inner, dict) else None
        return LocatedText(str(value), _line(text, key)) if value not in (None, "") else None

    environment = data.get("Environment")
    return JobPart(
        name,
        _line(text, "TrainingJobName"),
        "sagemaker",
        "CreateTrainingJob",
        instance=word("ResourceConfig", "InstanceType"),
        nodes=word("ResourceConfig", "InstanceCount"),
        image=word("AlgorithmSpecification", "TrainingImage"),
        environment={
            key: LocatedText(str(value), _line(text, key))
            for key, value in (environment.items() if isinstance(environment, dict) else ())
        },
        traits={"vpc": LocatedText("given", _line(text, "VpcConfig"))} if data.get("VpcConfig") else {},
    )


def _line(text: str, key: str) -> int:
    """Return the line of the first mention of a key."""
    position = text.find(f'"{key}"')
    return text.count("\n", 0, position) + 1 if position >= 0 else 1
