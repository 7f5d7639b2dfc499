"""Read SageMaker's CreateTrainingJob requests."""

import re
from typing import Any

from rdma_images.jobs.check.job_part import JobPart, LocatedText
from rdma_images.jobs.check.parsers.yaml_node import MAX_WORD_LENGTH

KEY = re.compile(r'"(\w+)"[ \t]*:|\n')


def read_request(document: dict[str, Any], text: str, name: str) -> JobPart:
    """Return the part of a request; `text` is what lines are counted in, `name` its file."""
    lines = _lines_of_keys(text)

    def words(section: str) -> dict[str, LocatedText]:
        inner = document.get(section)
        values = inner.items() if isinstance(inner, dict) else ()
        return {key: LocatedText(str(value)[:MAX_WORD_LENGTH], lines.get(key, 1)) for key, value in values}

    resources, image = words("ResourceConfig"), words("AlgorithmSpecification").get("TrainingImage")
    return JobPart(
        file=name,
        line=lines.get("TrainingJobName", 1),
        kind="sagemaker",
        title="CreateTrainingJob",
        instance=resources.get("InstanceType"),
        nodes=resources.get("InstanceCount"),
        images=(image,) if image else (),
        environment=words("Environment"),
    )


def _lines_of_keys(text: str) -> dict[str, int]:
    """Return the line of the first mention of each key."""
    lines: dict[str, int] = {}
    line = 1
    for match in KEY.finditer(text):
        if match[1]:
            lines.setdefault(match[1], line)
        else:
            line += 1
    return lines
