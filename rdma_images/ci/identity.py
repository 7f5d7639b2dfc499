"""Fetch a GitHub job's identity token into files for Alibaba Cloud's and Azure's SDKs.

`python -m rdma_images.ci.identity COMMAND …`, in a job that may ask for it (`id-token: write`). A cloud takes part
whose variables are set; without any, the command just runs. The token is good for five minutes and the SDKs exchange it
when they need a role, for the second registry of a long push for instance: so a fresh one is fetched every two minutes.
Azure's own login action takes one token, and what comes later fails with AADSTS700024 (github.com/Azure/login, issues
180 and 372).
"""

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import requests

from rdma_images.core import atomic, http
from rdma_images.core.errors import RdmaImagesError, RefusedError
from rdma_images.core.progress import progress, run_periodically

# What GitHub gives to a job with `id-token: write`. Source: docs.github.com, "OpenID Connect reference".
URL, TOKEN = "ACTIONS_ID_TOKEN_REQUEST_URL", "ACTIONS_ID_TOKEN_REQUEST_TOKEN"
FRESH = 120.0  # seconds: a token of this age still has some minutes
RETRY_AFTER = 10.0  # seconds until a question that failed is asked again
ANSWER_SECONDS = 20  # seconds for an answer


@dataclass(frozen=True)
class Cloud:
    """A cloud whose SDK exchanges such a token for a role."""

    name: str
    needs: tuple[str, ...]  # the variables that say which role; all or none of them are set
    file: str  # the variable in which its SDK finds the file
    audience: str  # for whom GitHub is to say it


CLOUDS = (
    # The variables are those of alibabacloud-credentials, the audience is the one that Alibaba's own action asks for:
    # github.com/aliyun/configure-aliyun-credentials-action, action.yml.
    Cloud(
        "Alibaba Cloud",
        ("ALIBABA_CLOUD_ROLE_ARN", "ALIBABA_CLOUD_OIDC_PROVIDER_ARN"),
        "ALIBABA_CLOUD_OIDC_TOKEN_FILE",
        "sts.aliyuncs.com",
    ),
    # azure-identity's WorkloadIdentityCredential; the audience is Entra's for federated credentials.
    Cloud("Azure", ("AZURE_CLIENT_ID", "AZURE_TENANT_ID"), "AZURE_FEDERATED_TOKEN_FILE", "api://AzureADTokenExchange"),
)


def run_with_tokens(command: Sequence[str], environ: Mapping[str, str], fresh: float = FRESH) -> int:
    """Run `command` with tokens for each configured cloud; return its exit code.

    Raises RefusedError where a cloud's variables are incomplete or the job may not ask, RdmaImagesError where GitHub
    does not answer: then the command has not run.
    """
    # A workflow sets what is not configured to "", which the SDKs would take for a setting.
    roles = {name for cloud in CLOUDS for name in cloud.needs}
    variables = {name: value for name, value in environ.items() if value or name not in roles}
    clouds = _configured_clouds(variables)
    if not clouds:
        return subprocess.run(command, env=variables).returncode
    for name in (URL, TOKEN):
        if not variables.get(name):
            raise RefusedError(f"{name} is not set\ngive the job the permission `id-token: write`")
    with tempfile.TemporaryDirectory(prefix="rdma-images-", dir=variables.get("RUNNER_TEMP")) as folder:
        files = {cloud: Path(folder) / cloud.file for cloud in clouds}
        _write_tokens(files, variables)
        with _refreshed(files, variables, fresh):
            token_files = {cloud.file: str(file) for cloud, file in files.items()}
            return subprocess.run(command, env=variables | token_files).returncode


def _configured_clouds(environ: Mapping[str, str]) -> tuple[Cloud, ...]:
    """Return the clouds whose role is configured."""
    for cloud in CLOUDS:
        missing = [name for name in cloud.needs if name not in environ]
        if missing and len(missing) < len(cloud.needs):
            raise RefusedError(f"{cloud.name}: {', '.join(missing)} is missing\nset all of {', '.join(cloud.needs)}")
    return tuple(cloud for cloud in CLOUDS if cloud.needs[0] in environ)


def _write_tokens(files: Mapping[Cloud, Path], environ: Mapping[str, str]) -> None:
    for cloud, file in files.items():
        atomic.write(file, _token(cloud.audience, environ), mode=0o600)


def _token(audience: str, environ: Mapping[str, str]) -> str:
    """Return the signed token in which GitHub identifies this job to `audience`."""
    try:
        with http.session() as session:
            response = session.get(
                environ[URL],
                params={"audience": audience},
                headers={"Authorization": f"Bearer {environ[TOKEN]}"},
                timeout=ANSWER_SECONDS,
            )
        response.raise_for_status()
        return str(response.json()["value"])
    except (requests.RequestException, ValueError, KeyError, TypeError) as error:
        reason = str(error).replace(environ[TOKEN], "…")
        raise RdmaImagesError(f"GitHub gives no identity token for {audience}: {reason}\nrun the job again") from None


@contextmanager
def _refreshed(files: Mapping[Cloud, Path], environ: Mapping[str, str], fresh: float) -> Iterator[None]:
    """Write the files again every `fresh` seconds for as long as the block runs."""

    def refresh() -> float:
        try:
            _write_tokens(files, environ)
        except (RdmaImagesError, OSError) as error:  # the last token has some minutes left
            progress(f"{error}: asked again in {RETRY_AFTER:.0f} s")
            return RETRY_AFTER
        return fresh

    with run_periodically(refresh, fresh):
        yield


def main(command: Sequence[str]) -> int:
    """Run the command of the process's arguments; return the exit code."""
    if not command:
        print("usage: python -m rdma_images.ci.identity COMMAND …", file=sys.stderr)
        return 2
    try:
        return run_with_tokens(command, os.environ)
    except RdmaImagesError as error:
        print(error, file=sys.stderr)
        return error.exit_code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
