"""Real faults, each a small image made from a good one, and the one validator that must report it."""

from tests.e2e.fault_steps import (
    AS_REAL,
    CONF,
    EFA,
    LABEL,
    LIB,
    NCCL,
    OFI,
    OTHER,
    PLANT,
    Fault,
    S,
    decoded_at_the_start,
    extension_of_another_torch,
    names_topology,
    rename,
)

FAULTS = (
    Fault(
        "measured.complete",
        "a Python that cannot list folders",
        (f"RUN echo 'import os; os.scandir = None' > {S}/fault.pth",),
    ),
    Fault("nccl.found", "no libnccl", (f"RUN rm {NCCL}/lib/libnccl.so.2",)),
    Fault(
        "nccl.loaded",
        "another libnccl in /etc/ld.so.preload",
        (
            "COPY other/nvidia/nccl/lib/libnccl.so.2 /opt/planted/",
            "RUN echo /opt/planted/libnccl.so.2 > /etc/ld.so.preload",
        ),
        ("other",),
        besides=("environment.loader",),
    ),
    Fault(
        "nccl.version",
        "the wheel's file overwritten by another version's",
        (f"COPY other/nvidia/nccl/lib/libnccl.so.2 {NCCL}/lib/",),
        ("other",),
    ),
    Fault(
        "nccl.compiled",
        "an older NCCL wheel over torch's pin, labelled as such",
        (f"RUN rm -r {NCCL} {S}/nvidia_nccl_cu13-*", f"COPY older {S}", f"{LABEL}component.nccl=2.30.4"),
        ("older",),
        tag="older",
    ),
    Fault("nccl.matrix", "an image that is not what was planned", planned={"nccl": "2.32.3"}),
    Fault("nccl.wheels", "the wheels for CUDA 12 and 13, both", (f"COPY twelve {S}",), ("twelve",)),
    Fault(
        "nccl.cuda",
        "the wheel for CUDA 12 in the place of torch's for 13",
        (f"RUN rm -r {NCCL} {S}/nvidia_nccl_cu13-*", f"COPY twelve {S}"),
        ("twelve",),
    ),
    Fault(
        "nccl.loader",
        "another libnccl first in the loader's path",
        (f"RUN {PLANT}", "COPY other/nvidia/nccl/lib/libnccl.so.2 /opt/planted/", "RUN ldconfig"),
        ("other",),
    ),
    Fault("nccl.single", "a second libnccl that nothing loads", (f"RUN cp {NCCL}/lib/libnccl.so.2 /opt/",)),
    Fault(
        "nccl.closure",
        "a libnccl that needs a library which is not there",
        (
            "RUN --mount=type=bind,source=patchelf,target=/patchelf "
            f"/patchelf/patchelf --add-needed libabsent.so.1 {NCCL}/lib/libnccl.so.2",
        ),
        ("patchelf",),
    ),
    Fault(
        "nccl.packages",
        "a Debian package of NCCL beside the wheel",
        (
            "RUN mkdir -p /p/DEBIAN && printf 'Package: libnccl2\\nVersion: 2.18.3-1+cuda12.1\\nArchitecture: amd64\\n"
            "Maintainer: nobody <nobody@example.org>\\nDescription: NCCL\\n' > /p/DEBIAN/control && "
            "dpkg-deb -b /p /p.deb && dpkg -i /p.deb && rm -r /p /p.deb",
        ),
    ),
    Fault(
        "nccl.header",
        "a nccl.h of another version",
        (f"RUN sed -i 's/^#define NCCL_MINOR .*/#define NCCL_MINOR 18/' {NCCL}/include/nccl.h",),
    ),
    Fault("nccl.environment", "NCCL_VERSION as a base image left it", ("ENV NCCL_VERSION=2.18.3-1",)),
    Fault("nccl.label", "a false label of NCCL", (f"{LABEL}component.nccl=2.18.3",)),
    Fault("label.tag", "a false version of Python in the tag", tag="py3.9"),
    Fault("nccl.tag", "a false version of NCCL in the tag", tag="nccl2.18.3"),
    Fault(
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
    Fault(
        "erdma.nccl",
        "NCCL 2.28.9 in an image for eRDMA",
        (
            f"RUN rm -r {S}/torch {S}/torch-* {NCCL} {S}/nvidia_nccl_cu13-*",
            f"COPY gin {S}",
            f'{LABEL}fabric=erdma {LABEL[6:]}component.nccl=2.28.9 {LABEL[6:]}component.pytorch=""',
            "ENV NCCL_NET=IB FI_PROVIDER=",
        ),
        ("gin",),
        besides=("nccl.broken",),
        tag="erdma",
    ),
    Fault("torch.closure", "a CUDA library missing", (f"RUN rm {S}/nvidia/cu13/lib/libcufft.so.*",)),
    Fault(
        "torch.imports", "a torch that cannot be imported", (f"RUN echo 'raise ImportError' >> {S}/torch/__init__.py",)
    ),
    Fault("torch.extensions", "a module compiled against another torch", (extension_of_another_torch(),)),
    Fault("torch.cuda", "a wheel of another CUDA", (f"COPY nvtx {S}",), ("nvtx",)),
    Fault(
        "torch.broken",
        "a torch that gives old addresses after a restart",
        (f"RUN sed -i 's/^Version: .*/Version: 2.5.1/' {S}/torch-*/METADATA",),
    ),
    Fault("libraries.intact", "the plugin is empty", (f"RUN : > {OFI}/lib/libnccl-net-ofi.so",)),
    Fault(
        "libraries.readable",
        "the plugin's folder is root's alone, and the image is not",
        (f"RUN chmod 700 {OFI} && echo 'u:x:1000:1000::/:/bin/sh' >> /etc/passwd", "USER 1000"),
        besides=("user.memlock",),
    ),
    Fault(
        "libraries.bundled",
        "a wheel that brings a libfabric",
        (f"RUN mkdir {S}/x.libs && cp {EFA}/lib/libfabric.so.1 {S}/x.libs/libfabric-0a1b2c3d.so.1",),
    ),
    Fault("user.account", "a user without a name", ("USER 4242",), besides=("user.memlock",)),
    Fault(
        "user.memlock", "a user that is not root", ("RUN echo 'u:x:1000:1000::/:/bin/sh' >> /etc/passwd", "USER 1000")
    ),
    Fault(
        "transports.load",
        "a module of UCX that needs a library which is not there",
        (
            f"RUN mkdir /opt/ucx && cp {LIB}/libnl-3.so.200 /opt/ucx/libuct_ib.so.0",
            "RUN --mount=type=bind,source=patchelf,target=/patchelf "
            "/patchelf/patchelf --add-needed libabsent.so.1 /opt/ucx/libuct_ib.so.0",
        ),
        ("patchelf",),
    ),
    Fault(
        "transports.own",
        "LD_LIBRARY_PATH leads a backend of NIXL to another NIXL",
        (
            "RUN mkdir -p /opt/one/plugins /opt/other"
            f" && for file in one/plugins/libplugin_LIBFABRIC one/libnixl other/libnixl; do cp {LIB}/libnl-3.so.200 "
            "/opt/$file.so; done",
            "RUN --mount=type=bind,source=patchelf,target=/patchelf "
            "/patchelf/patchelf --add-needed libnixl.so /opt/one/plugins/libplugin_LIBFABRIC.so",
            "ENV LD_LIBRARY_PATH=/opt/other",
        ),
        ("patchelf",),
    ),
    Fault(
        "transports.backends",
        "a NIXL with UCX alone",
        (f"RUN mkdir /opt/nixl && cp {LIB}/libnl-3.so.200 /opt/nixl/libplugin_UCX.so",),
    ),
    Fault(
        "packages.broken",
        "a NIXL that hangs over EFA",
        (
            f"RUN mkdir {S}/nixl_cu13-1.3.0.dist-info && printf 'Name: nixl-cu13\\nVersion: 1.3.0\\n\\n' "
            f"> {S}/nixl_cu13-1.3.0.dist-info/METADATA",
        ),
    ),
    Fault(
        "plugin.others",
        "a tuner of somebody else under NCCL's default name",
        (f"RUN cp {LIB}/libnl-3.so.200 {LIB}/libnccl-tuner.so",),
    ),
    Fault(
        "libraries.load",
        "the plugin asks libc for a version that it does not have",
        (f"RUN sed -i 's/GLIBC_2\\.2\\.5/GLIBC_9.2.5/' {OFI}/lib/libnccl-net-ofi.so",),
    ),
    Fault(
        "plugin.project",
        "HPC-X's plugin in the place of aws-ofi-nccl",
        (f"RUN sed -i 's/aws-ofi-nccl 1\\.2/NCCL RDMA Plugin/' {OFI}/lib/libnccl-net-ofi.so",),
    ),
    Fault(
        "plugin.newest",
        "a newer plugin in a folder that is not searched",
        (
            f"RUN mkdir /opt/newer && sed 's/aws-ofi-nccl 1/aws-ofi-nccl 9/' {OFI}/lib/libnccl-net-ofi.so > "
            "/opt/newer/libnccl-net.so",
        ),
    ),
    Fault(
        "plugin.reopened",
        "a plugin that only NCCL_NET_PLUGIN names, and an NCCL that forgets it",
        (
            f"RUN rm -r {S}/torch {S}/torch-* {NCCL} {S}/nvidia_nccl_cu13-*",
            f"COPY gin {S}",
            f'{LABEL}component.nccl=2.28.9 {LABEL[6:]}component.pytorch=""',
            f"RUN rm {OFI}/lib/libnccl-net.so",
            "ENV NCCL_NET_PLUGIN=ofi",
        ),
        ("gin",),
        tag="reopened",
    ),
    Fault(
        "plugin.broken",
        "a release that hangs in a broadcast",
        (
            f"RUN sed -i 's/aws-ofi-nccl 1\\.21\\.1/aws-ofi-nccl 1.18.0/' {OFI}/lib/libnccl-net-ofi.so",
            f"{LABEL}component.aws-ofi-nccl=1.18.0",
        ),
    ),
    Fault("plugin.found", "the plugin's link removed", (f"RUN rm {OFI}/lib/libnccl-net.so",)),
    Fault(
        "chain.holds",
        "a plugin that exports only v4",
        (rename("ncclNetPlugin_v", "ncclNetPlugin_v4"),),
    ),
    Fault(
        "plugin.tuner",
        "a tuner that exports only v1",
        (rename("ncclTunerPlugin_v", "ncclTunerPlugin_v1"),),
    ),
    Fault(
        "plugin.platform",
        "a plugin built without the AWS platform",
        (
            f"RUN sed -i 's/Configuring AWS-specific/Configuring any-specific/' {OFI}/lib/libnccl-net-ofi.so",
            rename("ncclTunerPlugin_v", "xcclTunerPlugin_v6"),
        ),
    ),
    Fault(
        "plugin.topology",
        "a plugin whose folder for topology files is not in the image",
        (names_topology("/opt/absent/share/aws-ofi-nccl/xml", "p5.48xl-topo.xml"),),
    ),
    Fault(
        "nccl.fabric",
        "an image with NCCL, and nothing that brings it to EFA or eRDMA",
        (
            "RUN rm -r /opt/amazon && rm -f /etc/ld.so.conf.d/*efa* /etc/ld.so.conf.d/*ofi* && ldconfig",
            f"RUN for n in mlx5 irdma bnxt_re; do rm -f {LIB}/libibverbs/lib$n-* /etc/libibverbs.d/$n.driver; done",
            f"{LABEL}fabric=unknown",
        ),
        besides=("label.efa-installer",),
    ),
    Fault("chain.holds", "a library that the plugin needs is missing", (f"RUN rm {LIB}/libhwloc.so.15*",)),
    Fault(
        "plugin.libfabric",
        "another libfabric first in the loader's path",
        (f"RUN {PLANT} && cp -P {EFA}/lib/libfabric.so.1* /opt/planted/ && ldconfig",),
    ),
    Fault("chain.holds", "no libfabric", (f"RUN rm {EFA}/lib/libfabric.so.1*",)),
    Fault(
        "libfabric.providers",
        "a provider beside libfabric that lacks a library",
        (
            f"RUN mkdir -p {EFA}/lib/libfabric && sed 's/libnl-3.so.200/libgone.so.200/' {LIB}/libnl-route-3.so.200 > "
            f"{EFA}/lib/libfabric/libgone-fi.so",
        ),
    ),
    Fault("libfabric.closure", "a library that libfabric needs is missing", (f"RUN rm {LIB}/libpsm2.so.2*",)),
    Fault(
        "libfabric.closure",
        "no libcudart.so, which AWS's libfabric opens by this name",
        (f"RUN rm {LIB}/libcudart.so",),
    ),
    Fault("libfabric.single", "a second libfabric that nothing loads", (f"RUN cp {EFA}/lib/libfabric.so.1.* /opt/",)),
    Fault("libfabric.fi-info", "no fi_info", (f"RUN rm {EFA}/bin/fi_info",)),
    Fault(
        "chain.holds",
        "a libfabric without the efa provider",
        (f"RUN sed -i 's/efa\\x00/xfa\\x00/g' {EFA}/lib/libfabric.so.1.*",),
    ),
    Fault(
        "libfabric.device",
        "an efa provider that crashes",
        (
            f'RUN cd {EFA}/bin && mv fi_info real && printf \'#!/bin/sh\\ncase "$*" in *-p*) kill -SEGV $$;; esac\\n'
            f'exec {EFA}/bin/real "$@"\\n\' > fi_info && chmod +x fi_info',
        ),
    ),
    Fault(
        "libfabric.same",
        "a fi_info that takes another libfabric",
        (
            f"RUN mkdir /opt/other && cp -P {EFA}/lib/libfabric.so.1* /opt/other/",
            "RUN --mount=type=bind,source=patchelf,target=/patchelf "
            f"/patchelf/patchelf --set-rpath /opt/other {EFA}/bin/fi_info",
        ),
        ("patchelf",),
    ),
    Fault("verbs.ibv-devinfo", "no ibv_devinfo", ("RUN rm $(command -v ibv_devinfo)",)),
    Fault("verbs.provider", "the efa provider is not announced", ("RUN rm /etc/libibverbs.d/efa.driver",)),
    Fault(
        "verbs.provider",
        "the efa provider and its announcement where nobody looks",
        (f"RUN mkdir /root/attic && mv {LIB}/libibverbs/libefa-rdmav34.so /etc/libibverbs.d/efa.driver /root/attic/",),
    ),
    Fault(
        "verbs.loader",
        "another libefa first in the loader's path",
        (f"RUN {PLANT} && cp -P {LIB}/libefa.so.1* /opt/planted/ && ldconfig",),
    ),
    Fault(
        "verbs.loader",
        "another libibverbs first in the loader's path",
        (f"RUN {PLANT} && cp -P {LIB}/libibverbs.so.1* /opt/planted/ && ldconfig",),
    ),
    Fault(
        "verbs.broken",
        "an rdma-core that knows no EFA of the fourth generation",
        (
            f"RUN cd {LIB} && rm libefa.so.1 && mv libefa.so.1.* libefa.so.1.3.50.0 "
            "&& ln -sf ../libefa.so.1.3.50.0 libibverbs/libefa-rdmav34.so && ldconfig",
        ),
    ),
    Fault(
        "verbs.suffix",
        "an efa provider of another ABI",
        (f"RUN mv {LIB}/libibverbs/libefa-rdmav34.so {LIB}/libibverbs/libefa-rdmav25.so",),
    ),
    Fault("verbs.single", "a second libibverbs", (f"RUN cp {LIB}/libibverbs.so.1.* /opt/",)),
    Fault("cuda.single", "a second CUDA runtime", (f"RUN cp {S}/nvidia/cu13/lib/libcudart.so.13 /usr/local/lib/",)),
    Fault(
        "verbs.closure",
        "the provider of EFA lacks a library",
        (
            f"RUN cd {LIB}/libibverbs && p=$(ls libefa-rdmav*.so) && cp --remove-destination $(readlink -f $p) $p && "
            "sed -i 's/libibverbs.so.1/libgonexxx.so.1/' $p",
        ),
    ),
    Fault(
        "verbs.usable",
        "an image for no fabric, with NCCL and without libibverbs",
        (
            f"RUN rm -r /opt/amazon /etc/libibverbs.d {LIB}/libibverbs* {LIB}/libefa* /usr/bin/ibv_devinfo",
            "RUN rm -f /etc/ld.so.conf.d/*efa* /etc/ld.so.conf.d/*ofi* && ldconfig",
            f"{LABEL}fabric=none",
        ),
        besides=("label.efa-installer", "transports.load"),
    ),
    Fault(
        "verbs.others",
        "a driver is announced that is not installed",
        ("RUN echo 'driver absentverbs' > /etc/libibverbs.d/absentverbs.driver",),
    ),
    Fault(
        "cuda.compat",
        "the driver's library of an older compat package",
        (
            f"RUN cd {LIB} && cp libnl-3.so.200 libcuda.so.470.57.02 && head -c 2M /dev/zero >> libcuda.so.470.57.02 "
            "&& ln -s libcuda.so.470.57.02 libcuda.so.1",
        ),
    ),
    Fault(
        "cuda.driver",
        "the driver's library of a package of the distribution",
        (
            f"RUN cd {LIB} && cp libnl-3.so.200 libcuda.so.999.43.02 && head -c 2M /dev/zero >> libcuda.so.999.43.02 "
            "&& ln -s libcuda.so.999.43.02 libcuda.so.1",
        ),
    ),
    Fault("cuda.stub", "a stub of the driver's library", (f"RUN cp {LIB}/libnl-3.so.200 {LIB}/libcuda.so.1",)),
    Fault(
        "cuda.toolkit",
        "a compiler of another CUDA, that nobody finds",
        (
            "RUN mkdir -p /usr/local/cuda/bin && cd /usr/local/cuda/bin && "
            "printf '#!/bin/sh\\necho Cuda compilation tools, release 12.8, V12.8.93\\n' > nvcc && chmod 755 nvcc",
        ),
    ),
    Fault("size.budget", "600 MB that nobody needs", ("RUN head -c 600000000 /dev/urandom > /opt/blob",)),
    Fault("environment.harmful", "NCCL_HOSTID set", ("ENV NCCL_HOSTID=node-0",)),
    Fault(
        "environment.harmful",
        "an entry point that decodes the settings that it exports",
        decoded_at_the_start("export NCCL_HOSTID=node-0"),
    ),
    Fault("environment.slow", "NCCL_PXN_DISABLE set", ("ENV NCCL_PXN_DISABLE=1",)),
    Fault("environment.misspelt", "a variable that nothing reads", ("ENV NCCL_IB_DISABLED=1",)),
    Fault("environment.obsolete", "a variable of older versions", ("ENV FI_EFA_FORK_SAFE=1",)),
    Fault("environment.refusal", "an image that refuses and says that it may fall back", (f"{LABEL}fallback=allow",)),
    Fault("environment.loader", "a library of the fabric in LD_PRELOAD", (f"ENV LD_PRELOAD={LIB}/libefa.so.1",)),
    Fault(
        "environment.needed",
        "a plugin that has to be told of the GPUs' memory",
        (
            f"RUN sed -i 's/aws-ofi-nccl 1\\.21\\.1/aws-ofi-nccl 1.06.0/' {OFI}/lib/libnccl-net-ofi.so",
            f"{LABEL}component.aws-ofi-nccl=1.06.0",
        ),
        besides=("environment.harmful", "environment.refusal", "plugin.broken"),
    ),
    Fault("environment.path", "a folder that is not there", ("ENV LD_LIBRARY_PATH=/opt/absent/lib",)),
    Fault("environment.files", "a file that is not there", ("ENV NCCL_CONF_FILE=/etc/absent.conf",)),
    Fault(
        "environment.files",
        "an entry point that decodes the name of a file that is not there",
        decoded_at_the_start("export NCCL_CONF_FILE=/etc/absent.conf"),
    ),
    Fault("environment.gpus", "NVIDIA_VISIBLE_DEVICES emptied", ("ENV NVIDIA_VISIBLE_DEVICES=",)),
    Fault(
        "layers.host-keys",
        "an SSH server's keys, made when it was installed",
        (
            "RUN mkdir -p /etc/ssh && printf -- '-----BEGIN OPENSSH PRIVATE KEY-----\\n' "
            "> /etc/ssh/ssh_host_ed25519_key",
        ),
    ),
    Fault("settings.harmful", "a name of the host in nccl.conf", (f"{CONF} NCCL_HOSTID=node-0",)),
    Fault(
        "settings.launchers",
        "a script that asks for tcp",
        ("RUN echo 'mpirun -x FI_PROVIDER=tcp train' > /opt/train.sh",),
    ),
    Fault("settings.slow", "NCCL_PXN_DISABLE in nccl.conf", (f"{CONF} NCCL_PXN_DISABLE=1",)),
    Fault("settings.readable", "a shell's line in nccl.conf", (f"{CONF} export NCCL_DEBUG=INFO",)),
    Fault("environment.secret", "a token in the environment", ("ENV REGISTRY_TOKEN=not-a-real-one",)),
    Fault("label.complete", "an empty label", ('LABEL org.opencontainers.image.revision=""',)),
    Fault("label.python", "a false label of Python", (f"{LABEL}component.python=3.9",)),
    Fault("label.pytorch", "a false label of PyTorch", (f"{LABEL}component.pytorch=2.4.0",)),
    Fault("label.cuda", "a false label of CUDA", (f"{LABEL}component.cuda=12.8",)),
    Fault("label.base", "a false label of the base", (f"{LABEL}component.base=ubuntu24.04",)),
    Fault(
        "label.libfabric",
        "a false label of libfabric",
        (*AS_REAL, f"{LABEL}component.libfabric=2.6.0amzn1.0"),
        besides=OTHER,
    ),
    Fault("libfabric.version", "another libfabric than the EFA installer's", AS_REAL),
    Fault(
        "label.rdma-core", "a false label of rdma-core", (*AS_REAL, f"{LABEL}component.rdma-core=64.0"), besides=OTHER
    ),
    Fault(
        "label.efa-installer",
        "a false label of the EFA installer",
        (f"{LABEL}component.efa-installer=1.47.0 {LABEL[6:]}rehearsal=efa-installer-1.47.0",),
    ),
    Fault("label.aws-ofi-nccl", "a false label of aws-ofi-nccl", (f"{LABEL}component.aws-ofi-nccl=1.18.0",)),
    Fault("label.architectures", "a label of programs that are not there", (f"{LABEL}nccl-tests.architectures=sm_90",)),
    Fault("label.cudnn", "a false label of cuDNN", (f"{LABEL}component.cudnn=9.10.2.21",)),
    Fault("label.rehearsal", "a rehearsal that hides its stand-ins", (AS_REAL[1],), besides=OTHER),
    Fault(
        "label.rehearsal",
        "a label that calls everything a stand-in",
        (f"{LABEL}rehearsal=efa-installer-1.50.0,python,pytorch,cuda,base,libfabric",),
    ),
    Fault(
        "layers.secrets",
        "a secret that a later layer removes",
        ("RUN echo 'login a password b' > /root/.netrc", "RUN rm /root/.netrc"),
    ),
    Fault(
        "layers.secrets",
        "the logins that docker, npm, apt and AWS leave behind",
        # Put together in the step: what stands in the history has a check of its own.
        (
            'RUN mkdir /root/.docker && printf \'{"auths": {"example.org": {"%s": "bm90OnJlYWw="}}}\' auth '
            "> /root/.docker/config.json && printf '//example.org/:_%s=not-a-real-one' authToken > /root/.npmrc && "
            "printf 'machine example.org login a %s b' password > /etc/apt/auth.conf.d/mirror.conf && "
            "printf 'aws_%s_access_key = %040d' secret 0 > /root/aws",
        ),
    ),
    Fault(
        "layers.caches", "a package cache", ("RUN mkdir -p /root/.cache/pip/http && echo > /root/.cache/pip/http/page",)
    ),
    Fault("layers.temporary", "a temporary file", ("RUN echo > /tmp/left",)),
    Fault("files.writable", "a folder that everybody may write to", ("RUN mkdir -m 777 /opt/open",)),
    # The toolkit itself needs a compiler; what is read of it is its METADATA.
    Fault(
        "sagemaker.toolkit",
        "SageMaker's training toolkit installed",
        (
            f"RUN cd {S} && mkdir sagemaker_training-5.1.4.dist-info && cd sagemaker_training-5.1.4.dist-info && "
            "printf 'Name: sagemaker_training\\nVersion: 5.1.4\\n' > METADATA",
        ),
    ),
    Fault("sagemaker.train", "an image for SageMaker without its command", (f"{LABEL}target=sagemaker-efa-pytorch",)),
)
