"""The packages of an image, and what was read of their contents."""

from rdma_images.inspection.measurements import DebianContents, MeasuredPackages, PackageContents, WheelContents

FOLDER = "/opt/venv/site-packages"
PACKAGES = MeasuredPackages(
    wheels={FOLDER: {"torch": "2.15.0", "numpy": "2.5.5"}},
    dpkg={"libc6": "2.41-12", "libfabric1-aws": "2.6.0amzn1.0"},
    rpm={"bash": "5.1-1"},
    dpkg_sources={"libc6": "glibc 2.41-12"},
)
CONTENTS = PackageContents(
    wheels={
        FOLDER: {
            "torch": WheelContents(
                license="BSD-3-Clause",
                supplier="PyTorch Team",
                requires=["numpy", "absent"],
                license_files=["torch-2.15.0.dist-info/licenses/LICENSE"],
                bundled={"torch/lib/libgomp.so.1": "ab" * 32},
                vendored={"fmt": "11.0"},
            )
        }
    },
    debian={
        "libc6": DebianContents(
            architecture="amd64", licenses=["LGPL-2.1+"], copyright="/usr/share/doc/libc6/copyright"
        ),
        "libfabric1-aws": DebianContents(architecture="amd64", depends=["libc6"]),
    },
    efa=["libfabric1-aws"],
)
