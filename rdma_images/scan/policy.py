"""policy.yaml: which vulnerabilities keep an image from being published, and which are excepted until when."""

from collections.abc import Iterator
from datetime import date, timedelta
from pathlib import Path
from typing import Annotated, Literal

from pydantic import AfterValidator, BeforeValidator, Field, WithJsonSchema

from rdma_images.core import files, yaml_file
from rdma_images.core.errors import RefusedError
from rdma_images.core.paths import DATA, PROJECT, display_path
from rdma_images.core.yaml_file import Document, Strict, YamlPath
from rdma_images.scan.scan_result import Severity, Vulnerability

EXAMPLE = DATA / "policy.example.yaml"
NAME = "policy.yaml"
WARN_DAYS = 14  # before an exception's end

# Source: OpenVEX 0.2.0, "Status Justifications".
Justification = Literal[
    "component_not_present",
    "vulnerable_code_not_present",
    "vulnerable_code_not_in_execute_path",
    "vulnerable_code_cannot_be_controlled_by_adversary",
    "inline_mitigations_already_exist",
]


def _parse_day(text: object) -> object:
    try:
        return date.fromisoformat(str(text))
    except ValueError:
        raise ValueError(f"{text!r} is no day: write it as 2027-01-31") from None


def _check_filled(text: str) -> str:
    if not text.strip():
        raise ValueError("is empty: write it")
    return text


Day = Annotated[date, BeforeValidator(_parse_day), WithJsonSchema({"type": "string", "format": "date"})]
Filled = Annotated[str, AfterValidator(_check_filled)]
Days = Annotated[int, Field(ge=0, le=3650)]


class VulnerabilityStatement(Strict):
    """A decision about one vulnerability: its reason, its owner and its last day."""

    id: Filled = Field(description="CVE-2026-1234, or another database's id for it.")
    package: str = Field(default="", description="The package; without it every package with this vulnerability.")
    reason: Filled = Field(description="Why, for who reviews it.")
    owner: Filled = Field(description="Who answers for it: a person's or a team's address.")
    until: Day = Field(description="Its last day, as 2027-01-31.")

    def covers(self, vulnerability: Vulnerability) -> bool:
        """Return whether it is about this vulnerability."""
        return self.id in vulnerability.ids and self.package in ("", vulnerability.package)


class NotAffected(VulnerabilityStatement):
    """A vulnerability that the image has and that cannot be exploited in it."""

    justification: Justification = Field(description="One of OpenVEX's five.")


class OriginRules(Strict):
    """The requirements on an image's signed provenance, for `invoke verify --policy`."""

    builders: tuple[Filled, ...] = Field(default=(), description="Ids of builders, of which one must have built it.")
    sources: tuple[Filled, ...] = Field(
        default=(), description="Addresses of repositories, of which one must have its sources: github.com/team/images."
    )
    locked_inputs: bool = Field(default=False, description="Each download, base and archive must have a digest.")
    identity: str = Field(
        default="", description="Who must have signed, keyless, as a regular expression; as `verify --identity`."
    )
    issuer: str = Field(default="", description="Who must vouch for that identity; as `verify --issuer`.")


class Policy(Document):
    """policy.yaml."""

    grace_days: dict[Severity, Days] = Field(
        description="By severity, the days from a fix's or an advisory's day until it refuses an image. "
        "A severity that is not named never refuses one."
    )
    fixed_only: bool = Field(default=False, description="Refuse only where there is a version with a fix.")
    max_scan_age: Days = Field(default=7, description="Days after which a scan is too old.")
    exceptions: tuple[VulnerabilityStatement, ...] = Field(default=(), description="Accepted for a time.")
    not_affected: tuple[NotAffected, ...] = Field(default=(), description="Cannot be exploited; become OpenVEX.")

    origin: OriginRules = Field(default=OriginRules(), description="Asked by `invoke verify` of the provenance.")

    def problems(self) -> Iterator[tuple[YamlPath, str]]:
        """Yield each statement that is written twice, and half a signer."""
        if bool(self.origin.identity) != bool(self.origin.issuer):
            yield ("origin",), "identity and issuer belong together: write both"
        for name, statements in (("exceptions", self.exceptions), ("not-affected", self.not_affected)):
            keys = [(statement.id, statement.package) for statement in statements]
            for number, key in enumerate(keys):
                if key in keys[:number]:
                    yield (name, number), f"{' in '.join(filter(None, key))} is written twice: remove one"

    def require_origin(self) -> OriginRules:
        """Return what a provenance must say.

        Raises RefusedError where the policy says nothing of it.
        """
        if self.origin == OriginRules():
            raise RefusedError(
                f"{self.where()}: has no 'origin', which says what a provenance must name\n"
                f"add it, as {display_path(EXAMPLE)} has it; or leave out --policy"
            )
        return self.origin

    def check(self, today: date) -> list[str]:
        """Return a line for each exception that ends within 14 days.

        Raises RefusedError, with file and line, for those that have ended.
        """
        expired, expiring = [], []
        for name, statements in (("exceptions", self.exceptions), ("not-affected", self.not_affected)):
            for number, statement in enumerate(statements):
                where = f"{self.where(name, number)}: the exception for {statement.id}"
                if statement.until < today:
                    expired.append(
                        f"{where} ended on {statement.until}\nfix it, or let {statement.owner} decide on a new day"
                    )
                elif statement.until <= today + timedelta(WARN_DAYS):
                    expiring.append(f"{where} ends on {statement.until}: tell {statement.owner}")
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
