"""SageMaker's CreateTrainingJob request."""

from typing import Any

from rdma_images.jobs.check.foreign_job import JobPart, LocatedText


def part(document: dict[str, Any], text: str, name: str) -> JobPart:
    """Return the part of a request; `text` is what lines are counted in, `name` its file."""

    def word(section: str, key: str) -> LocatedText | None:
        inner = document.get(section)
        value = inner.get(key) if isinstance(inner, dict) else None
        return LocatedText(str(value), _line(text, key)) if value not in (None, "") else None

    environment = document.get("Environment")
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
        traits={"vpc": LocatedText("given", _line(text, "VpcConfig"))} if document.get("VpcConfig") else {},
    )


def _line(text: str, key: str) -> int:
    """Return the line of the first mention of a key."""
    position = text.find(f'"{key}"')
    return text.count("\n", 0, position) + 1 if position >= 0 else 1
