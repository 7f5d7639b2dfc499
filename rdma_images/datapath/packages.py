"""The Debian packages of the emulator, of the guests' kernel and of the tools, by what they are for."""

# Kernel and emulator are of one stable suite; its programs run with its own libraries, so any x86-64 host will do.
SUITE = "trixie"

# The versioned package it depends on has the kernel with rdma_rxe; the cloud flavour's kernel does not have it.
KERNEL = "linux-image-amd64"

# QEMU with its firmware and all that it links to.
QEMU = (
    *("qemu-system-x86", "qemu-system-data", "seabios", "libaio1t64", "libatomic1", "libblkid1", "libbpf1", "libc6"),
    *("libcap2", "libcapstone5", "libdaxctl1", "libelf1t64", "libfdt1", "libffi8", "libfuse3-4", "libglib2.0-0t64"),
    *("libgmp10", "libgnutls30t64", "libhogweed6t64", "libibverbs1", "libidn2-0", "libjpeg62-turbo", "libkmod2"),
    *("libmount1", "libndctl6", "libnettle8t64", "libnl-3-200", "libnl-route-3-200", "libnuma1", "libp11-kit0"),
    *("libpcre2-8-0", "libpixman-1-0", "libpmem1", "libpng16-16t64", "librdmacm1t64", "libsasl2-2", "libseccomp2"),
    *("libselinux1", "libslirp0", "libssl3t64", "libtasn1-6", "libudev1", "libunistring5", "liburing2", "libuuid1"),
    *("libvdeplug2t64", "libzstd1", "zlib1g"),
)

# What reads an image's files and makes a disk of them.
DISK = ("tar", "libacl1", "erofs-utils", "libdeflate0", "liblz4-1", "liblzma5", "libxxhash0")

# What a guest's first root filesystem is made of.
BOOT = ("busybox-static", "iproute2", "libmnl0", "libcap2-bin")

PROGRAMS = tuple(sorted({*QEMU, *DISK, *BOOT}))

# Tools for images that lack them. The oldest suite with security updates: what it links to (libc 2.34, the first
# stable symbols of libibverbs, librdmacm and libfabric, libmpi.so.40) is in every base an image can have.
TOOL_SUITE = "bookworm"
TOOL_PACKAGES = ("ibverbs-utils", "rdmacm-utils", "libfabric-bin", "netpipe-openmpi")
TOOLS = ("ibv_devinfo", "ibv_rc_pingpong", "rping", "fi_info", "fi_pingpong", "NPopenmpi")
