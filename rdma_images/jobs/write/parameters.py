"""Read a launcher's parameters: values that only the user knows."""

import re
from collections.abc import Mapping

from rdma_images.core.errors import RefusedError, suggestion
from rdma_images.facts.launchers import Parameter


def parse_values(parameters: Mapping[str, Parameter], values: Mapping[str, str], subject: str) -> dict[str, str]:
    """Return the parameters with their defaults; errors call their launcher `subject`.

    Raises RefusedError for one that is not known or not of its form, and for all that are missing at once.
    """
    for name, value in values.items():
        if name not in parameters:
            raise RefusedError(f"--param {name}: {subject} takes no such parameter\n{suggestion(name, parameters)}")
        if not re.fullmatch(parameters[name].form, value):
            raise RefusedError(
                f"--param {name}={value}: not of the form {parameters[name].form}\ngive {parameters[name].description}"
            )
    missing_rows = {name: row for name, row in parameters.items() if row.required and name not in values}
    if missing_rows:
        lines = [f"  --param {name}=…  {row.description}" for name, row in missing_rows.items()]
        raise RefusedError("\n".join([f"{subject} cannot know, and needs:", *lines]))
    defaults = {name: row.default for name, row in parameters.items() if row.default is not None}
    return {**defaults, **values}
