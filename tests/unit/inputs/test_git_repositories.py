"""Commits are fetched by git itself, from a real server of repositories."""

import stat
from pathlib import Path

import pytest

from rdma_images.core.errors import RdmaImagesError
from rdma_images.core.local_package import LocalPackage
from rdma_images.inputs import git_repositories
from rdma_images.inputs.mirrors import Mirrors
from tests.support import git_server

BUNDLE = Path("/etc/ssl/certs/ca-certificates.crt")
PROJECT = {"pyproject.toml": '[project]\nname = "ops"\nversion = "1"\n', "tools/run.sh": "#!/bin/sh\n"}


@pytest.fixture(autouse=True)
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RDMA_IMAGES_STATE", str(tmp_path / "state"))
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", "/dev/null")


def test_a_commit_is_fetched_once_without_what_git_keeps(tmp_path: Path) -> None:
    (tmp_path / "git" / "ops").mkdir(parents=True)
    first = git_server.commit(tmp_path / "git" / "ops", PROJECT)
    git_server.commit(tmp_path / "git" / "ops", {"later.py": ""})
    with git_server.serve(tmp_path / "git") as address:
        folder = git_repositories.fetch(LocalPackage("commit", f"{address}/ops", first), Mirrors(BUNDLE))
    assert sorted(path.name for path in folder.iterdir()) == ["pyproject.toml", "tools"]
    assert stat.S_ISREG((folder / "tools" / "run.sh").stat().st_mode)
    # The server is gone: what is there is not asked for again.
    assert git_repositories.fetch(LocalPackage("commit", f"{address}/ops", first), Mirrors(BUNDLE)) == folder


def test_gits_own_login_opens_it_and_is_in_no_message(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "git" / "ops").mkdir(parents=True)
    commit = git_server.commit(tmp_path / "git" / "ops", PROJECT)
    monkeypatch.setenv("HOME", str(tmp_path))
    with git_server.serve(tmp_path / "git", "me:secret") as address:
        package = LocalPackage("commit", f"{address}/ops", commit)
        (tmp_path / ".netrc").write_text("machine 127.0.0.1 login me password wrong\n")
        with pytest.raises(RdmaImagesError, match=r"fatal: .*\nsee that the repository has this commit") as caught:
            git_repositories.fetch(package, Mirrors(BUNDLE))
        assert "wrong" not in str(caught.value)
        (tmp_path / ".netrc").write_text("machine 127.0.0.1 login me password secret\n")
        assert git_repositories.fetch(package, Mirrors(BUNDLE)).is_dir()


def test_a_commit_that_is_not_there(tmp_path: Path) -> None:
    (tmp_path / "git" / "ops").mkdir(parents=True)
    git_server.commit(tmp_path / "git" / "ops", PROJECT)
    with git_server.serve(tmp_path / "git") as address:
        package = LocalPackage("commit", f"{address}/ops", "0123456789" * 4)
        with pytest.raises(RdmaImagesError, match=f"@{package.digest}: (fatal|error): "):
            git_repositories.fetch(package, Mirrors(BUNDLE))
    assert not git_repositories.commit_folder(package).exists()
