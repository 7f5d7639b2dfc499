"""Secrets and caches by path, name and content."""

import pytest

from rdma_images.core import leftovers
from tests.support.processor_limit import processor_limit


@pytest.mark.parametrize(
    ("path", "kind"),
    [
        ("/root/.netrc", "secret"),
        ("/home/me/.ssh/id_ed25519", "secret"),
        ("/var/lib/apt/lists/deb.example_dists_main_Packages.lz4", "cache"),
        ("/var/lib/apt/lists/lock", None),
        ("/root/.cache/pip/http/a", "cache"),
        ("/tmp/left", None),
        ("/usr/lib/python3/tmp/x", None),
        ("/opt/venv/site-packages/torch/id_rsa.py", None),
    ],
)
def test_leftovers_by_path(path: str, kind: str | None) -> None:
    assert leftovers.leftover_kind(path) == kind


def test_secrets_by_content() -> None:
    key = b"-----BEGIN OPENSSH " + b"PRIVATE KEY-----"
    assert leftovers.find_secret(b"x\n" + key) == "a private key"
    assert (
        leftovers.find_secret(b"index-url = https://me:" + b"hunter22@example.org/simple")
        == "an address with a password"
    )
    assert leftovers.find_secret(b"https://example.org/a:b@c") is None
    assert leftovers.find_secret(b"proxy: https://${user}:${password}@example.org") is None
    assert leftovers.file_may_hold_secret("/etc/pip.conf", 100)
    assert leftovers.file_may_hold_secret("/root/.docker/config.json", 100)
    assert not leftovers.file_may_hold_secret("/opt/venv/lib/python3/site-packages/test/key.pem", 100)


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ('{"auths": {"registry.example.org": {"auth": "%s"}}}' % ("bWU6" * 3), "a login to a registry"),
        ('{"auths": {"registry.example.org": {"identitytoken": "%s"}}}' % ("e30." * 3), "a login to a registry"),
        ("//registry.example.org/:_authToken=%s\n" % ("0a1b-" * 6), "a login to npm"),
        ("//registry.example.org/:_password=%s\n" % ("bWU6" * 3), "a login to npm"),
        ("machine apt.example.org\nlogin me\npassword " + "hunter22\n", "a login to a host"),
        ("[default]\naws_secret_access_key = %s\n" % ("0aZ/+" * 8), "an access key of AWS"),
        ('{"AWS_SECRET_ACCESS_KEY": "%s"}' % ("0aZ/+" * 8), "an access key of AWS"),
        ('{"auths": {"registry.example.org": {}}, "credsStore": "ecr-login"}', None),
        ('{"type": "object", "auth": "authentication"}', None),
        ("//registry.example.org/:_authToken=${NPM_TOKEN}\n", None),
        ("machine apt.example.org login me password ${PASSWORD}\n", None),
        ("aws_secret_access_key = <your key>\n", None),
        ("aws_secret_access_key_file = /run/secrets/aws\n", None),
    ],
)
def test_logins_by_content(text: str, kind: str | None) -> None:
    assert leftovers.find_secret(text.encode()) == kind


@pytest.mark.parametrize(
    ("variable", "value", "secret", "named"),
    [
        ("HF_TOKEN", "hf_" + "a" * 34, True, True),
        ("MODELS", "hf_" + "a" * 34, True, False),
        ("AWS_SECRET_ACCESS_KEY", "0aZ/+" * 8, True, True),
        ("DB_PASSWORD", "hunter22", False, True),
        ("TOKENIZERS_PARALLELISM", "false", False, False),
        ("MAX_TOKENS", "4096", False, False),
        ("HF_TOKEN_PATH", "/run/secrets/hf", False, False),
        ("HF_TOKEN", "", False, False),
    ],
)
def test_variables_of_secrets(variable: str, value: str, secret: bool, named: bool) -> None:
    assert leftovers.is_secret_value(variable, value) == secret
    assert leftovers.is_secret_name(variable, value) == named


@pytest.mark.parametrize(
    "piece", [b'"auths":{', b"//a", b"machine a login ", b"https://", b"aws_secret_access_key ", b"A"]
)
def test_a_text_made_to_be_slow_is_read_in_no_time(piece: bytes) -> None:
    with processor_limit(20):
        leftovers.find_secret(piece * (leftovers.MAX_TEXT_BYTES // len(piece)))
