"""Faults of libibverbs, CUDA, settings, labels and layers; `faults` has the others."""

from tests.e2e.fault_steps import AS_REAL, CONF, LABEL, LIB, OFI, OTHER, PLANT, ImageFault, S, decoded_at_the_start

FAULTS = (
    ImageFault(
        "verbs.provider",
        "the efa provider and its announcement where nobody looks",
        (f"RUN mkdir /root/attic && mv {LIB}/libibverbs/libefa-rdmav34.so /etc/libibverbs.d/efa.driver /root/attic/",),
    ),
    ImageFault(
        "verbs.loader",
        "another libefa first in the loader's path",
        (f"RUN {PLANT} && cp -P {LIB}/libefa.so.1* /opt/planted/ && ldconfig",),
    ),
    ImageFault(
        "verbs.loader",
        "another libibverbs first in the loader's path",
        (f"RUN {PLANT} && cp -P {LIB}/libibverbs.so.1* /opt/planted/ && ldconfig",),
    ),
    ImageFault(
        "verbs.broken",
        "an rdma-core that knows no EFA of the fourth generation",
        (
            f"RUN cd {LIB} && rm libefa.so.1 && mv libefa.so.1.* libefa.so.1.3.50.0 "
            "&& ln -sf ../libefa.so.1.3.50.0 libibverbs/libefa-rdmav34.so && ldconfig",
        ),
    ),
    ImageFault(
        "verbs.suffix",
        "an efa provider of another ABI",
        (f"RUN mv {LIB}/libibverbs/libefa-rdmav34.so {LIB}/libibverbs/libefa-rdmav25.so",),
    ),
    ImageFault(
        "verbs.closure",
        "the provider of EFA lacks a library",
        (
            f"RUN cd {LIB}/libibverbs && p=$(ls libefa-rdmav*.so) && cp --remove-destination $(readlink -f $p) $p && "
            "sed -i 's/libibverbs.so.1/libgonexxx.so.1/' $p",
        ),
    ),
    ImageFault(
        "cuda.compat",
        "the driver's library of an older compat package",
        (
            f"RUN cd {LIB} && cp libnl-3.so.200 libcuda.so.470.57.02 && head -c 2M /dev/zero >> libcuda.so.470.57.02 "
            "&& ln -s libcuda.so.470.57.02 libcuda.so.1",
        ),
    ),
    ImageFault(
        "cuda.driver",
        "the driver's library of a package of the distribution",
        (
            f"RUN cd {LIB} && cp libnl-3.so.200 libcuda.so.999.43.02 && head -c 2M /dev/zero >> libcuda.so.999.43.02 "
            "&& ln -s libcuda.so.999.43.02 libcuda.so.1",
        ),
    ),
    ImageFault("cuda.stub", "a stub of the driver's library", (f"RUN cp {LIB}/libnl-3.so.200 {LIB}/libcuda.so.1",)),
    ImageFault("size.budget", "600 MB that nobody needs", ("RUN head -c 600000000 /dev/urandom > /opt/blob",)),
    ImageFault("environment.harmful", "NCCL_HOSTID set", ("ENV NCCL_HOSTID=node-0",)),
    ImageFault(
        "environment.harmful",
        "an entry point that decodes the settings that it exports",
        decoded_at_the_start("export NCCL_HOSTID=node-0"),
    ),
    ImageFault("environment.slow", "NCCL_PXN_DISABLE set", ("ENV NCCL_PXN_DISABLE=1",)),
    ImageFault("environment.misspelt", "a variable that nothing reads", ("ENV NCCL_IB_DISABLED=1",)),
    ImageFault(
        "environment.refusal", "an image that refuses and says that it may fall back", (f"{LABEL}fallback=allow",)
    ),
    ImageFault(
        "environment.needed",
        "a plugin that has to be told of the GPUs' memory",
        (
            f"RUN sed -i 's/aws-ofi-nccl 1\\.21\\.1/aws-ofi-nccl 1.06.0/' {OFI}/lib/libnccl-net-ofi.so",
            f"{LABEL}component.aws-ofi-nccl=1.06.0",
        ),
        besides=("environment.harmful", "plugin.broken"),
    ),
    ImageFault("environment.files", "a file that is not there", ("ENV NCCL_CONF_FILE=/etc/absent.conf",)),
    ImageFault(
        "environment.files",
        "an entry point that decodes the name of a file that is not there",
        decoded_at_the_start("export NCCL_CONF_FILE=/etc/absent.conf"),
    ),
    ImageFault("environment.gpus", "NVIDIA_VISIBLE_DEVICES emptied", ("ENV NVIDIA_VISIBLE_DEVICES=",)),
    ImageFault(
        "layers.host-keys",
        "an SSH server's keys, made when it was installed",
        (
            # Put together in the step: what stands in the history has a check of its own.
            "RUN mkdir -p /etc/ssh && printf -- '-----BEGIN OPENSSH %s KEY-----\\n' PRIVATE "
            "> /etc/ssh/ssh_host_ed25519_key",
        ),
    ),
    ImageFault("settings.harmful", "a name of the host in nccl.conf", (f"{CONF} NCCL_HOSTID=node-0",)),
    ImageFault("settings.slow", "NCCL_PXN_DISABLE in nccl.conf", (f"{CONF} NCCL_PXN_DISABLE=1",)),
    ImageFault("settings.readable", "a shell's line in nccl.conf", (f"{CONF} export NCCL_DEBUG=INFO",)),
    ImageFault("environment.secret", "a token in the environment", (f"ENV MODELS=hf_{'a' * 34}",)),
    ImageFault("label.complete", "an empty label", ('LABEL org.opencontainers.image.revision=""',)),
    ImageFault("label.python", "a false label of Python", (f"{LABEL}component.python=3.9",)),
    ImageFault("label.pytorch", "a false label of PyTorch", (f"{LABEL}component.pytorch=2.4.0",)),
    ImageFault("label.cuda", "a false label of CUDA", (f"{LABEL}component.cuda=12.8",)),
    ImageFault("label.base", "a false label of the base", (f"{LABEL}component.base=ubuntu24.04",)),
    ImageFault(
        "label.libfabric",
        "a false label of libfabric",
        (*AS_REAL, f"{LABEL}component.libfabric=2.6.0amzn1.0"),
        besides=OTHER,
    ),
    # A stand-in's plugin, which does not start.
    ImageFault("libfabric.version", "another libfabric than the EFA installer's", AS_REAL, besides=("chain.holds",)),
    ImageFault(
        "label.rdma-core", "a false label of rdma-core", (*AS_REAL, f"{LABEL}component.rdma-core=64.0"), besides=OTHER
    ),
    ImageFault(
        "label.efa-installer",
        "a false label of the EFA installer",
        (f"{LABEL}component.efa-installer=1.47.0 {LABEL[6:]}rehearsal=efa-installer-1.47.0",),
    ),
    ImageFault("label.aws-ofi-nccl", "a false label of aws-ofi-nccl", (f"{LABEL}component.aws-ofi-nccl=1.18.0",)),
    ImageFault(
        "label.architectures", "a label of programs that are not there", (f"{LABEL}nccl-tests.architectures=sm_90",)
    ),
    ImageFault("gdrcopy.loaded", "a label of a library that is not there", (f"{LABEL}component.gdrcopy=2.6",)),
    ImageFault("label.rehearsal", "a rehearsal that hides its stand-ins", (AS_REAL[1],), besides=OTHER),
    ImageFault(
        "label.rehearsal",
        "a label that calls everything a stand-in",
        (f"{LABEL}rehearsal=efa-installer-1.50.0,python,pytorch,cuda,base,libfabric",),
    ),
    ImageFault(
        "layers.secrets",
        "a secret that a later layer removes",
        ("RUN printf 'machine a login a %s b' password > /root/.netrc", "RUN rm /root/.netrc"),
    ),
    ImageFault("layers.secret-names", "a file in which programs keep logins", ("RUN echo a > /root/.netrc",)),
    ImageFault(
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
    ImageFault(
        "layers.caches", "a package cache", ("RUN mkdir -p /root/.cache/pip/http && echo > /root/.cache/pip/http/page",)
    ),
    # The toolkit itself needs a compiler; what is read of it is its METADATA.
    ImageFault(
        "sagemaker.toolkit",
        "SageMaker's training toolkit installed",
        (
            f"RUN cd {S} && mkdir sagemaker_training-5.1.4.dist-info && cd sagemaker_training-5.1.4.dist-info && "
            "printf 'Name: sagemaker_training\\nVersion: 5.1.4\\n' > METADATA",
        ),
    ),
    ImageFault(
        "sagemaker.train", "an image for SageMaker without its command", (f"{LABEL}target=sagemaker-efa-pytorch",)
    ),
)
