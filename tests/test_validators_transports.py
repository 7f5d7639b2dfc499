"""What opens a network beside NCCL, in images as the packages' own wheels make them."""

import pytest

from tests.incidents import run
from tests.incidents.case import base
from tests.incidents.image import Change

SITE = "/opt/venv/lib/python3.12/site-packages"
# nixl-cu13 1.5.1 from the package index: its Python module loads what lies in .libs before it opens the plugins.
NIXL = {
    f"{SITE}/nixl_cu13-1.5.1.dist-info/METADATA": {
        "text": "Metadata-Version: 2.4\nName: nixl-cu13\nVersion: 1.5.1\n\n"
    },
    f"{SITE}/.nixl_cu13.mesonpy.libs/libnixl_common.so": {"library": {"soname": "libnixl_common.so"}},
    f"{SITE}/.nixl_cu13.mesonpy.libs/libserdes.so": {"library": {"soname": "libserdes.so"}},
    f"{SITE}/nvidia/cu13/lib/libcudart.so.13": {"library": {"soname": "libcudart.so.13"}},
    f"{SITE}/nixl_cu13.libs/nixl/libplugin_LIBFABRIC.so": {
        "library": {
            "soname": "libplugin_LIBFABRIC.so",
            "needed": ["libnixl_common.so", "libserdes.so", "libfabric.so.1", "libcudart.so.13"],
            "runpath": "$ORIGIN/..:$ORIGIN",
            "exports": ["nixl_plugin_init"],
        }
    },
    f"{SITE}/nixl_cu13.libs/ucx/libuct_ib_mlx5_gdp.so.0.0.0": {
        "library": {"soname": "libuct_ib_mlx5_gdp.so.0", "needed": ["libflexio.so"]}
    },
}


@pytest.mark.parametrize(
    ("without", "lacking"), [("", ""), (f"{SITE}/nvidia/cu13/lib/libcudart.so.13", "lacks libcudart.so.13")]
)
def test_nixl_finds_what_python_has_loaded_before(without: str, lacking: str) -> None:
    files = {path: file for path, file in NIXL.items() if path != without}
    image = base("efa").changed(Change.model_validate({"files": files}))
    (check,) = [one for one in run.checks({"nixl": image})["nixl"] if one.id == "transports.load"]
    assert check.outcome == ("failed" if lacking else "passed")
    assert lacking in check.found
