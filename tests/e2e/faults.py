"""Real faults, each a small image made from a good one, and the validator that reports it."""

from tests.e2e import system_faults
from tests.e2e.fault_steps import EFA, LABEL, LIB, NCCL, OFI, PLANT, ImageFault, S, rename

FAULTS = (
    ImageFault(
        "measured.complete",
        "a Python that cannot list folders",
        (f"RUN echo 'import os; os.scandir = None' > {S}/fault.pth",),
    ),
    ImageFault("nccl.found", "no libnccl", (f"RUN rm {NCCL}/lib/libnccl.so.2",)),
    ImageFault(
        "nccl.loaded",
        "another libnccl in /etc/ld.so.preload",
        (
            "COPY other/nvidia/nccl/lib/libnccl.so.2 /opt/planted/",
            "RUN echo /opt/planted/libnccl.so.2 > /etc/ld.so.preload",
        ),
        ("other",),
    ),
    ImageFault(
        "nccl.version",
        "the wheel's file overwritten by another version's",
        (f"COPY other/nvidia/nccl/lib/libnccl.so.2 {NCCL}/lib/",),
        ("other",),
    ),
    ImageFault(
        "nccl.compiled",
        "an older NCCL wheel over torch's pin, labelled as such",
        (f"RUN rm -r {NCCL} {S}/nvidia_nccl_cu13-*", f"COPY older {S}", f"{LABEL}component.nccl=2.30.4"),
        ("older",),
        tag="older",
        besides=("nccl.broken",),
    ),
    ImageFault("nccl.matrix", "an image that is not what was planned", planned={"nccl": "2.32.3"}),
    ImageFault("nccl.wheels", "the wheels for CUDA 12 and 13, both", (f"COPY twelve {S}",), ("twelve",)),
    ImageFault(
        "nccl.cuda",
        "the wheel for CUDA 12 in the place of torch's for 13",
        (f"RUN rm -r {NCCL} {S}/nvidia_nccl_cu13-*", f"COPY twelve {S}"),
        ("twelve",),
    ),
    ImageFault(
        "nccl.loader",
        "another libnccl first in the loader's path",
        (f"RUN {PLANT}", "COPY other/nvidia/nccl/lib/libnccl.so.2 /opt/planted/", "RUN ldconfig"),
        ("other",),
    ),
    ImageFault("nccl.single", "a second libnccl that nothing loads", (f"RUN cp {NCCL}/lib/libnccl.so.2 /opt/",)),
    ImageFault(
        "nccl.closure",
        "a libnccl that needs a library which is not there",
        (
            "RUN --mount=type=bind,source=patchelf,target=/patchelf "
            f"/patchelf/patchelf --add-needed libabsent.so.1 {NCCL}/lib/libnccl.so.2",
        ),
        ("patchelf",),
    ),
    ImageFault("nccl.label", "a false label of NCCL", (f"{LABEL}component.nccl=2.18.3",)),
    ImageFault(
        "nccl.broken",
        "an NCCL that crashes without its plugin",
        (
            f"RUN rm -r {S}/torch {S}/torch-* {NCCL} {S}/nvidia_nccl_cu13-*",
            # In one layer: a copy that is edited afterwards would be two, and more than the image's budget.
            f"RUN --mount=type=bind,source=gin,target=/mnt cp -r /mnt/. {S}"
            f" && sed -i 's/NCCL version 2.28.9/NCCL version 2.28.3/' {NCCL}/lib/libnccl.so.2"
            f" && sed -i 's/^#define NCCL_PATCH .*/#define NCCL_PATCH 3/' {NCCL}/include/nccl.h"
            f" && sed -i 's/^Version: .*/Version: 2.28.3/' {S}/nvidia_nccl_cu13-*/METADATA",
            f'{LABEL}component.nccl=2.28.3 {LABEL[6:]}component.pytorch=""',
        ),
        ("gin",),
        tag="crashing",
    ),
    ImageFault(
        "erdma.nccl",
        "NCCL 2.18.3 in an image for eRDMA",
        (
            f"RUN rm -r {S}/torch {S}/torch-* {NCCL} {S}/nvidia_nccl_cu13-*",
            f"RUN --mount=type=bind,source=gin,target=/mnt cp -r /mnt/. {S}"
            f" && sed -i 's/NCCL version 2.28.9/NCCL version 2.18.3/' {NCCL}/lib/libnccl.so.2"
            f" && sed -i 's/^Version: .*/Version: 2.18.3/' {S}/nvidia_nccl_cu13-*/METADATA",
            f'{LABEL}fabric=erdma {LABEL[6:]}component.nccl=2.18.3 {LABEL[6:]}component.pytorch=""',
            "ENV NCCL_NET=IB FI_PROVIDER=",
        ),
        ("gin",),
        besides=("nccl.broken",),
        tag="erdma",
    ),
    ImageFault("torch.closure", "a CUDA library missing", (f"RUN rm {S}/nvidia/cu13/lib/libcufft.so.*",)),
    ImageFault(
        "torch.imports", "a torch that cannot be imported", (f"RUN echo 'raise ImportError' >> {S}/torch/__init__.py",)
    ),
    ImageFault(
        "torch.broken",
        "a torch that gives old addresses after a restart",
        (f"RUN sed -i 's/^Version: .*/Version: 2.5.1/' {S}/torch-*/METADATA",),
    ),
    ImageFault("libraries.intact", "the plugin is empty", (f"RUN : > {OFI}/lib/libnccl-net-ofi.so",)),
    ImageFault(
        "libraries.bundled",
        "a wheel that brings a libfabric",
        (f"RUN mkdir {S}/x.libs && cp {EFA}/lib/libfabric.so.1 {S}/x.libs/libfabric-0a1b2c3d.so.1",),
    ),
    ImageFault(
        "user.memlock",
        "a user that is not root",
        ("RUN echo 'u:x:1000:1000::/tmp:/bin/sh' >> /etc/passwd", "USER 1000"),
    ),
    ImageFault(
        "transports.load",
        "a module of UCX that needs a library which is not there",
        (
            f"RUN mkdir /opt/ucx && cp {LIB}/libnl-3.so.200 /opt/ucx/libuct_ib.so.0",
            "RUN --mount=type=bind,source=patchelf,target=/patchelf "
            "/patchelf/patchelf --add-needed libabsent.so.1 /opt/ucx/libuct_ib.so.0",
        ),
        ("patchelf",),
    ),
    ImageFault(
        "transports.fabric",
        "a NIXL whose folder has a libfabric of its own",
        (
            f"RUN mkdir -p {S}/nixl_cu13.libs/nixl && cp {EFA}/lib/libfabric.so.1 {S}/nixl_cu13.libs/ && "
            f"cp {LIB}/libnl-3.so.200 {S}/nixl_cu13.libs/nixl/libplugin_LIBFABRIC.so",
            "RUN --mount=type=bind,source=patchelf,target=/patchelf /patchelf/patchelf --add-needed libfabric.so.1 "
            f"--set-rpath {S}/nixl_cu13.libs {S}/nixl_cu13.libs/nixl/libplugin_LIBFABRIC.so",
        ),
        ("patchelf",),
    ),
    ImageFault(
        "transports.backends",
        "a NIXL with UCX alone",
        (f"RUN mkdir /opt/nixl && cp {LIB}/libnl-3.so.200 /opt/nixl/libplugin_UCX.so",),
    ),
    ImageFault(
        "packages.broken",
        "a NIXL that hangs over EFA",
        (
            f"RUN mkdir {S}/nixl_cu13-1.3.0.dist-info && printf 'Name: nixl-cu13\\nVersion: 1.3.0\\n\\n' "
            f"> {S}/nixl_cu13-1.3.0.dist-info/METADATA",
        ),
    ),
    ImageFault(
        "libraries.load",
        "the plugin asks libc for a version that it does not have",
        (f"RUN sed -i 's/GLIBC_2\\.2\\.5/GLIBC_9.2.5/' {OFI}/lib/libnccl-net-ofi.so",),
    ),
    ImageFault(
        "plugin.project",
        "HPC-X's plugin in the place of aws-ofi-nccl",
        (f"RUN sed -i 's/aws-ofi-nccl 1\\.2/NCCL RDMA Plugin/' {OFI}/lib/libnccl-net-ofi.so",),
    ),
    ImageFault(
        "plugin.broken",
        "a release that hangs in a broadcast",
        (
            f"RUN sed -i 's/aws-ofi-nccl 1\\.21\\.1/aws-ofi-nccl 1.18.0/' {OFI}/lib/libnccl-net-ofi.so",
            f"{LABEL}component.aws-ofi-nccl=1.18.0",
        ),
    ),
    ImageFault("plugin.found", "the plugin's link removed", (f"RUN rm {OFI}/lib/libnccl-net.so",)),
    ImageFault("chain.holds", "a plugin that exports only v4", (rename("ncclNetPlugin_v", "ncclNetPlugin_v4"),)),
    ImageFault(
        "plugin.platform",
        "a plugin built without the AWS platform",
        (
            f"RUN sed -i 's/Configuring AWS-specific/Configuring any-specific/' {OFI}/lib/libnccl-net-ofi.so",
            rename("ncclTunerPlugin_v", "xcclTunerPlugin_v6"),
        ),
    ),
    ImageFault("chain.holds", "a library that the plugin needs is missing", (f"RUN rm {LIB}/libhwloc.so.15*",)),
    ImageFault(
        "plugin.libfabric",
        "another libfabric first in the loader's path",
        (f"RUN {PLANT} && cp -P {EFA}/lib/libfabric.so.1* /opt/planted/ && ldconfig",),
    ),
    ImageFault("chain.holds", "no libfabric", (f"RUN rm {EFA}/lib/libfabric.so.1*",)),
    ImageFault("libfabric.closure", "a library that libfabric needs is missing", (f"RUN rm {LIB}/libpsm2.so.2*",)),
    ImageFault(
        "libfabric.closure",
        "no libcudart.so, which AWS's libfabric opens by this name",
        (f"RUN rm {LIB}/libcudart.so",),
    ),
    ImageFault("libfabric.fi-info", "no fi_info", (f"RUN rm {EFA}/bin/fi_info",)),
    ImageFault(
        "chain.holds",
        "a libfabric without the efa provider",
        (f"RUN sed -i 's/efa\\x00/xfa\\x00/g' {EFA}/lib/libfabric.so.1.*",),
    ),
    ImageFault(
        "libfabric.device",
        "an efa provider that crashes",
        (
            f'RUN cd {EFA}/bin && mv fi_info real && printf \'#!/bin/sh\\ncase "$*" in *-p*) kill -SEGV $$;; esac\\n'
            f'exec {EFA}/bin/real "$@"\\n\' > fi_info && chmod +x fi_info',
        ),
    ),
    ImageFault("verbs.ibv-devinfo", "no ibv_devinfo", ("RUN rm $(command -v ibv_devinfo)",)),
    ImageFault("verbs.provider", "the efa provider is not announced", ("RUN rm /etc/libibverbs.d/efa.driver",)),
    *system_faults.FAULTS,
)
# The fault of each check that DOCS shows: its first, by the check's name.
DOCUMENTED = {
    name: next(fault for fault in FAULTS if fault.validator == name)
    for name in sorted({fault.validator for fault in FAULTS})
}
