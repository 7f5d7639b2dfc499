"""Leftovers in an image, by path and content: secrets, caches of package managers."""

import re

CACHES = re.compile(
    r"""/var/lib/apt/lists/(?!(?:lock|partial|auxfiles)$).+
    | /var/cache/apt/(?:archives/.+\.deb|.*pkgcache\.bin)
    | /var/cache/(?:dnf|yum|apk|zypp)/.+
    | (?:/root|/home/[^/]+|)/\.cache/(?:pip|uv)/.+
    | /opt/conda/pkgs/[^/]+\.(?:conda|tar\.bz2)""",
    re.VERBOSE,
)
SECRET_NAMES = re.compile(
    r".*/(?:\.netrc|\.git-credentials|\.pypirc|id_(?:rsa|dsa|ecdsa|ed25519)|\.aws/credentials|\.aliyun/config\.json|\.ossutilconfig"
    r"|\.azure/(?:accessTokens|msal_token_cache|service_principal_entries)\.(?:json|bin)|\.ssh/[^/]*_key)"
)
# Where a setting, a key or a token is left behind; installed packages bring keys for their own tests.
SECRET_PATHS = re.compile(
    r"/(?:root|home|etc|opt|run|srv|app|workspace|tmp|usr/local/etc|build|[^/]+$)(?:/|$).*|/[^/]+"
)
INSTALLED = re.compile(r".*/(?:site-packages|dist-packages|node_modules|share|ssl/certs|ca-certificates)/.*")
# By what they are. What is filled in later (${TOKEN}, <password>) is none; repeats are bounded: texts are untrusted.
SECRETS = {
    "a private key": re.compile(rb"-----BEGIN (?:[A-Z]+ )?PRIVATE KEY-----"),
    "an access key of AWS": re.compile(
        rb"\bAKIA[0-9A-Z]{16}\b|(?i:aws_secret_access_key)[\"']?\s{0,9}[=:]\s{0,9}[\"']?[A-Za-z0-9/+]{40}(?![A-Za-z0-9/+])"
    ),
    "a temporary key of AWS": re.compile(rb"(?i:aws_session_token)[\"']?\s{0,9}[=:]\s{0,9}[\"']?[A-Za-z0-9/+=]{100}"),
    "an AccessKey of Alibaba Cloud": re.compile(rb"\bLTAI[0-9A-Za-z]{12,26}\b"),
    "a key of Azure": re.compile(
        rb"\bAccountKey=[A-Za-z0-9+/]{86}==|\b[A-Za-z0-9_~.-]{3}8Q~[A-Za-z0-9_~.-]{34}(?![A-Za-z0-9_~.-])"
    ),
    "a token of GitHub": re.compile(rb"\bgh[pousr]_[A-Za-z0-9]{36}\b|\bgithub_pat_[A-Za-z0-9_]{82}\b"),
    "a token of Docker Hub": re.compile(rb"\bdckr_pat_[A-Za-z0-9_-]{27}"),
    "a key of NGC": re.compile(rb"\bnvapi-[A-Za-z0-9_-]{64}"),
    "a token of Hugging Face": re.compile(rb"\bhf_[A-Za-z]{34}\b"),
    "a token of GitLab": re.compile(rb"\bglpat-[A-Za-z0-9_-]{20}\b"),
    "a login to a registry": re.compile(
        rb"\"auths\"\s{0,9}:\s{0,9}\{(?s:.{0,2000}?)\"(?:auth|password|identitytoken|registrytoken)\"\s{0,9}:\s{0,9}\"[^\"\s$<{]{8}"
    ),
    "a login to npm": re.compile(
        rb"(?://[^\s:]{1,200}:_(?:auth|password)|_authToken)\s{0,9}=\s{0,9}[\"']?[A-Za-z0-9_./+=-]{8}"
    ),
    "a token of PyPI": re.compile(rb"\bpypi-[A-Za-z0-9_-]{50}"),
    "a login to a host": re.compile(
        rb"\bmachine\s{1,9}\S{1,200}\s{1,9}login\s{1,9}\S{1,200}\s{1,9}password\s{1,9}[^\s$<{*]"
    ),
    "an address with a password": re.compile(rb"https?://[^/\s:@\"']+:[^/\s:@\"'$<{*]{3,}@"),
}
# HF_TOKEN, DB_PASSWORD and AWS_SECRET_ACCESS_KEY; neither TOKENIZERS_PARALLELISM nor MAX_TOKENS nor HF_TOKEN_PATH.
SECRET_VARIABLE = re.compile(
    r"(?:.*(?:PASSW(?:OR)?D|(?:API|ACCESS|PRIVATE|SECRET)_?KEY)|(?:.*[^A-Z])?(?:SECRET|TOKEN))(?![A-Z])(?!.*_(?:FILE|PATH|DIR)$).*",
    re.IGNORECASE,
)
# A number, a switch, a path, what is filled in later, or too short to be one.
NO_SECRET = re.compile(r"[\d.]*|true|false|none|null|/.*|.*\$.*|<.*>|.{1,5}", re.IGNORECASE)
BY_NAME = "by its name"
MAX_TEXT_BYTES = 64 * 1024  # bytes: keys and settings are small


def leftover_kind(path: str) -> str | None:
    """Return "secret" or "cache" for a regular file that its path gives away.

    Returns:
        None for any other.
    """
    if SECRET_NAMES.fullmatch(path):
        return "secret"
    return "cache" if CACHES.fullmatch(path) else None


def file_may_hold_secret(path: str, size: int) -> bool:
    """Return whether the file's content is worth reading for a secret."""
    return 0 < size <= MAX_TEXT_BYTES and not INSTALLED.fullmatch(path) and bool(SECRET_PATHS.fullmatch(path))


def may_be_secret(variable: str, value: str) -> bool:
    """Return whether a variable or a label may be a secret, by its name or its value."""
    return bool(value and SECRET_VARIABLE.fullmatch(variable)) or is_secret_value(variable, value)


def is_secret_value(variable: str, value: str) -> bool:
    """Return whether the value of a variable or a label is a secret by its form."""
    return bool(value and find_secret(f"{variable}={value}".encode()))


def is_secret_name(variable: str, value: str) -> bool:
    """Return whether a variable or label is called as secrets are, with a possible one."""
    return bool(SECRET_VARIABLE.fullmatch(variable)) and not NO_SECRET.fullmatch(value)


def find_secret(text: bytes) -> str | None:
    """Return what kind of secret `text` holds, without the secret; None if it holds none."""
    return next((kind for kind, pattern in SECRETS.items() if pattern.search(text)), None)
