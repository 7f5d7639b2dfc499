"""policy.yaml: which vulnerabilities keep an image from being published, and which are excepted until when."""

from collections.abc import Iterator
from datetime import date, timedelta
from pathlib import Path
from typing import Annotated

from pydantic import AfterValidator, BeforeValidator, Field, WithJsonSchema

from rdma_images.core import files, yaml_file
from rdma_images.core.errors import RefusedError
from rdma_images.core.paths import DATA, PROJECT, display_path
from rdma_images.core.yaml_file import Document, Strict, YamlPath
from rdma_images.publish.evidence.scan_result import Severity, Vulnerability

EXAMPLE = DATA / "policy.example.yaml"
NAME = "policy.yaml"
WARN_DAYS = 14  # before an exception's end


def _parse_day(text: object) -> object:
    try:
        return date.fromisoformat(str(text))
    except ValueError:
        raise ValueError(f"{text!r} is not a day: write it as 2027-01-31") from None


def _check_filled(text: str) -> str:
    if not text.strip():
        raise ValueError("is empty: write it")
    return text


Day = Annotated[date, BeforeValidator(_parse_day), WithJsonSchema({"type": "string", "format": "date"})]
Filled = Annotated[str, AfterValidator(_check_filled)]
Days = Annotated[int, Field(ge=0, le=3650)]


class PolicyException(Strict):
    """A vulnerability that is accepted for a time: why, by whom, until when."""

    id: Filled = Field(description="CVE-2026-1234, or another database's id for it.")
    package: str = Field(default="", description="The package; without it every package with this vulnerability.")
    reason: Filled = Field(description="Why, for who reviews it.")
    owner: Filled = Field(description="Who answers for it: a person's or a team's address.")
    until: Day = Field(description="Its last day, as 2027-01-31.")

    def covers(self, vulnerability: Vulnerability) -> bool:
        """Return whether it is about this vulnerability."""
        return self.id == vulnerability.id and self.package in ("", vulnerability.package)


class Policy(Document):
    """policy.yaml."""

    grace_days: dict[Severity, Days] = Field(
        description="By severity, the days from the advisory until it refuses an image. "
        "A severity that is not named never refuses one."
    )
    fixed_only: bool = Field(default=False, description="Refuse only where there is a version with a fix.")
    max_scan_age: Days = Field(default=7, description="Days after which a scan is too old.")
    exceptions: tuple[PolicyException, ...] = Field(default=(), description="Accepted for a time.")

    def problems(self) -> Iterator[tuple[YamlPath, str]]:
        """Yield each exception that is written twice."""
        keys = [(exception.id, exception.package) for exception in self.exceptions]
        for number, key in enumerate(keys):
            if key in keys[:number]:
                yield ("exceptions", number), f"{' in '.join(filter(None, key))} is written twice: remove one"

    def check(self, today: date) -> list[str]:
        """Return a line for each exception that ends within 14 days.

        Raises RefusedError, with file and line, for those that have ended.
        """
        expired, expiring = [], []
        for number, exception in enumerate(self.exceptions):
            where = f"{self.where('exceptions', number)}: the exception for {exception.id}"
            if exception.until < today:
                expired.append(
                    f"{where} ended on {exception.until}\nfix it, or let {exception.owner} decide on a new day"
                )
            elif exception.until <= today + timedelta(WARN_DAYS):
                expiring.append(f"{where} ends on {exception.until}: tell {exception.owner}")
        if expired:
            raise RefusedError("\n".join(expired))
        return expiring


def load_policy(path: Path) -> Policy:
    """Return the policy in `path`. Raises RefusedError with file and line."""
    if not files.exists(path):
        raise RefusedError(f"{path}: no such file\ncopy {display_path(EXAMPLE)} and change it")
    return yaml_file.load(path, Policy)


def chosen_policy(option: str) -> Policy | None:
    """Return the policy of `--policy`, else the project's; None for neither."""
    if option:
        return load_policy(files.expand_user(option))
    path = PROJECT / NAME
    return load_policy(path) if files.exists(path) else None
