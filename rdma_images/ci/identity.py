"""Keep a GitHub job's identity token in a file for Alibaba Cloud's SDK.

`python -m rdma_images.ci.identity COMMAND …`, in a job that may ask for it (`id-token: write`). Where the variables of
the role are not set, the command just runs. The token is good for five minutes and the SDK exchanges it when it needs
the role, for the second registry of a long push for instance: so a fresh one is fetched every two minutes.
"""

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
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


# The variables are those of alibabacloud-credentials, the audience is the one that Alibaba's own action asks for:
# github.com/aliyun/configure-aliyun-credentials-action, action.yml.
ROLE = ("ALIBABA_CLOUD_ROLE_ARN", "ALIBABA_CLOUD_OIDC_PROVIDER_ARN")  # both are set, or neither
TOKEN_FILE = "ALIBABA_CLOUD_OIDC_TOKEN_FILE"
AUDIENCE = "sts.aliyuncs.com"


def run_with_token(command: Sequence[str], environ: Mapping[str, str], fresh: float = FRESH) -> int:
    """Run `command` with a token for the role, if one is configured; return its exit code.

    Args:
        fresh: Seconds after which the token is fetched again.

    Raises:
        RefusedError: The role's variables are incomplete, or the job may not ask; the command has not run.
        RdmaImagesError: GitHub does not answer; the command has not run.
    """
    # A workflow sets what is not configured to "", which the SDK would take for a setting.
    variables = {name: value for name, value in environ.items() if value or name not in ROLE}
    missing = [name for name in ROLE if name not in variables]
    if len(missing) == len(ROLE):
        return subprocess.run(command, env=variables).returncode
    if missing:
        raise RefusedError(f"Alibaba Cloud: {', '.join(missing)} is missing\nset all of {', '.join(ROLE)}")
    for name in (URL, TOKEN):
        if not variables.get(name):
            raise RefusedError(f"{name} is not set\ngive the job the permission `id-token: write`")
    with tempfile.TemporaryDirectory(prefix="rdma-images-", dir=variables.get("RUNNER_TEMP")) as folder:
        file = Path(folder) / TOKEN_FILE
        atomic.write(file, _token(variables), mode=0o600)
        with _refreshed(file, variables, fresh):
            return subprocess.run(command, env=variables | {TOKEN_FILE: str(file)}).returncode


def _token(environ: Mapping[str, str]) -> str:
    """Return the signed token in which GitHub identifies this job to Alibaba Cloud."""
    try:
        with http.session() as session:
            response = session.get(
                environ[URL],
                params={"audience": AUDIENCE},
                headers={"Authorization": f"Bearer {environ[TOKEN]}"},
                timeout=ANSWER_SECONDS,
            )
        response.raise_for_status()
        return str(response.json()["value"])
    except (requests.RequestException, ValueError, KeyError, TypeError) as error:
        reason = str(error).replace(environ[TOKEN], "…")
        raise RdmaImagesError(f"GitHub gives no identity token for {AUDIENCE}: {reason}\nrun the job again") from None


@contextmanager
def _refreshed(file: Path, environ: Mapping[str, str], fresh: float) -> Iterator[None]:
    """Write the token's file again every `fresh` seconds for as long as the block runs."""

    def refresh() -> float:
        try:
            atomic.write(file, _token(environ), mode=0o600)
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
        return run_with_token(command, os.environ)
    except RdmaImagesError as error:
        print(error, file=sys.stderr)
        return error.exit_code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
