"""Templates that are kept compiled: right after a change, and never in the way."""

from pathlib import Path

import jinja2
import pytest
from jinja2.bccache import bc_magic

from rdma_images.core import templates


@pytest.fixture(name="folder")
def _folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("RDMA_IMAGES_STATE", str(tmp_path / "state"))
    (tmp_path / "one.j2").write_text("{{ who }} is here\n")
    return tmp_path


def rendered(folder: Path) -> str:
    return templates.environment([folder]).get_template("one.j2").render(who="NCCL")


def test_a_template_is_compiled_once(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = rendered(folder)
    monkeypatch.setattr(jinja2.Environment, "compile", None)
    assert rendered(folder) == first == "NCCL is here\n"


def test_a_changed_template_is_compiled_again(folder: Path) -> None:
    rendered(folder)
    (folder / "one.j2").write_text("{{ who }} is gone\n")
    assert rendered(folder) == "NCCL is gone\n"


def test_checkouts_share_what_is_compiled(folder: Path, tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.mkdir()
    (other / "one.j2").write_text("{{ who }} is elsewhere\n")
    assert [rendered(checkout) for checkout in (folder, other, folder)] == [
        "NCCL is here\n",
        "NCCL is elsewhere\n",
        "NCCL is here\n",
    ]
    assert len(list((folder / "state" / "templates").iterdir())) == 1


@pytest.mark.parametrize("length", [0, 5, 20, 40, 100, -1])
@pytest.mark.parametrize("damage", [b"", b"\0" * 4096])
def test_a_compiled_template_may_be_damaged(folder: Path, length: int, damage: bytes) -> None:
    rendered(folder)
    (cached,) = (folder / "state" / "templates").iterdir()
    cached.write_bytes(cached.read_bytes()[:length] + damage)
    assert rendered(folder) == "NCCL is here\n"


@pytest.mark.parametrize("damage", [b"cnothing\nthere\n.", b"Vkey\n\x85R.", b"N."])
def test_unpickling_what_is_damaged_may_raise_anything(folder: Path, damage: bytes) -> None:
    rendered(folder)
    (cached,) = (folder / "state" / "templates").iterdir()
    cached.write_bytes(bc_magic + damage)
    assert rendered(folder) == "NCCL is here\n"


def test_what_is_compiled_in_another_way_has_another_file(folder: Path) -> None:
    (folder / "one.j2").write_text("{{ who }}")
    templates_by_escape = {
        escape: templates.environment([folder], escape=escape).get_template("one.j2") for escape in (False, True)
    }
    assert [template.render(who="<b>") for template in templates_by_escape.values()] == ["<b>", "&lt;b&gt;"]


def test_nothing_is_stored_where_that_is_not_possible(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (folder / "state").write_text("a file, where the folder would be")
    assert rendered(folder) == "NCCL is here\n"
    monkeypatch.delenv("RDMA_IMAGES_STATE")
    monkeypatch.delenv("XDG_STATE_HOME", raising=False)

    def no_home() -> Path:
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.setattr(Path, "home", no_home)
    assert rendered(folder) == "NCCL is here\n"
