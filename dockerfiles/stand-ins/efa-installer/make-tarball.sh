#!/bin/sh
# make-tarball.sh FOLDER: lays the packages out as the real installer's tarball does, in FOLDER/aws-efa-installer-<version>.tar.gz.
set -eu
export SOURCE_DATE_EPOCH=315532800 # for dpkg-deb, so that a rehearsal is the same bytes, too
out=$1
here=$(dirname "$0")
. /etc/os-release
arch=$(uname -m)
tree=/tmp/aws-efa-installer
debs=$tree/DEBS/$(echo "$ID" | tr '[:lower:]' '[:upper:]')$(echo "$VERSION_ID" | tr -d .)/$arch
mkdir -p "$debs/rdma-core" "$out"
shared=$here/../shared
. "$shared/plugin.sh"

# repackage DEB NAME DEPENDS: unpacks DEB into $work as package NAME; what follows rearranges it, then `pack` makes it a package again.
repackage() {
    work=$(mktemp -d)
    dpkg-deb --raw-extract "$1" "$work"
    rm -rf "$work"/DEBIAN/symbols "$work"/DEBIAN/shlibs "$work"/DEBIAN/triggers "$work"/DEBIAN/md5sums "$work"/usr/share/doc
    sed -i -E -e "s/^Package: .*/Package: $2/" -e "s/^Version: (.*)/Version: \1+standin/" \
        -e '/^(Multi-Arch|Source|Provides|Breaks|Replaces|Conflicts|Recommends|Suggests):/d' "$work/DEBIAN/control"
    if [ -n "$3" ]; then sed -i "s/^Depends: .*/Depends: $3/" "$work/DEBIAN/control"; fi
}
pack() {
    version=$(sed -n 's/^Version: //p' "$work/DEBIAN/control")
    package=$(sed -n 's/^Package: //p' "$work/DEBIAN/control")
    dpkg-deb --build -Znone --root-owner-group "$work" "$debs/${package}_${version}_$(dpkg --print-architecture).deb" > /dev/null
    rm -rf "$work"
}

repackage /debs/libfabric1_*.deb libfabric1-aws ''
mkdir -p "$work/opt/amazon/efa"
mv "$work"/usr/lib/*-linux-gnu "$work/opt/amazon/efa/lib"
rm -rf "${work:?}/usr"
fabric=$(readlink -f "$work/opt/amazon/efa/lib/libfabric.so.1")
# Debian's knows no GPU. AWS's opens CUDA's runtime by its name, and says this where there is none: what checks an image for that
# name finds it by these words. They take the place of words as long that no Linux prints.
instead='FI_SOCKETS_PE_AFFINITY is not supported on OS X and Windows'
LC_ALL=C sed -i "s/$instead/$(printf '%-59s' 'Failed to dlopen libcudart.so')/" "$fabric"
cp "$fabric" /tmp/libfabric.so.1
# Debian's Open MPI asks for libfabric by Debian's name.
sed -i -E 's/^Version: (.*)/&\nProvides: libfabric1 (= \1)/' "$work/DEBIAN/control"
pack

repackage /debs-dev/libfabric-dev_*.deb libfabric-aws-dev libfabric1-aws
mkdir -p "$work/opt/amazon/efa/lib"
mv "$work/usr/include" "$work/opt/amazon/efa/include"
ln -s libfabric.so.1 "$work/opt/amazon/efa/lib/libfabric.so"
rm -rf "${work:?}/usr"
pack

# Open MPI where EFA's is: Debian's own, whose programs and libraries are called from there. A moved one would not find itself.
repackage /debs-dev/libopenmpi-dev_*.deb openmpi40-aws openmpi-bin
mpi=$work/opt/amazon/openmpi
mkdir -p "$mpi/bin" "$mpi/lib"
cp -RL "$(find "$work/usr/lib" -path '*/openmpi/include' -type d)" "$mpi/include"
for program in mpirun mpiexec; do ln -s "/usr/bin/$program.openmpi" "$mpi/bin/$program"; done
ln -s "/usr/lib/$(uname -m)-linux-gnu/libmpi.so.40" "$mpi/lib/libmpi.so"
rm -rf "${work:?}/usr" "$work"/DEBIAN/p*
pack

# Debian 13's UCX, which its Open MPI needs, is linked with AMD's ROCm: LLVM and 240 MB that no image with EFA has.
repackage /debs-dev/libucx0_*.deb libucx0 ''
rm -f "$work"/usr/lib/*/ucx/*rocm*
sed -i -E '/^Depends:/s/(libamdhip64|libhsa-runtime64)[^,]*, //g' "$work/DEBIAN/control"
pack

repackage /debs/libfabric-bin_*.deb libfabric-aws-bin libfabric1-aws
mkdir -p "$work/opt/amazon/efa"
mv "$work/usr/bin" "$work/opt/amazon/efa/bin"
rm -rf "${work:?}/usr"
pack

# new_package NAME VERSION DEPENDS DESCRIPTION: an empty package in $work.
new_package() {
    work=$(mktemp -d)
    mkdir -p "$work/DEBIAN" "$work/etc/ld.so.conf.d"
    printf 'Package: %s\nVersion: %s\nArchitecture: %s\nMaintainer: rdma-images\nDepends: %s\nDescription: %s\n' \
        "$1" "$2" "$(dpkg --print-architecture)" "$3" "$4" > "$work/DEBIAN/control"
}

new_package efa-profile "$EFA_INSTALLER+standin" libc6 "where the loader finds EFA's libfabric (stand-in)"
echo /opt/amazon/efa/lib > "$work/etc/ld.so.conf.d/efa.conf"
pack

dpkg-deb --extract /debs-dev/libhwloc15_*.deb /tmp/hwloc

# plugin_package NAME SYMLINK: the plugin; the NGC variant of newer installers has no libnccl-net.so, which is the trap.
plugin_package() {
    new_package "$1" "$AWS_OFI_NCCL+standin" "libfabric1-aws, libhwloc15" "NCCL plugin that refuses to start (stand-in)"
    lib=$work/opt/amazon/ofi-nccl/$PLUGIN_LIBDIR
    mkdir -p "$lib"
    CC=tcc PLATFORMS=AWS compile_plugin "$lib/libnccl-net-ofi.so" /tmp/libfabric.so.1 /tmp/hwloc/usr/lib/*/libhwloc.so.15
    if [ -n "$2" ]; then ln -s libnccl-net-ofi.so "$lib/libnccl-net.so"; fi
    for tuner in libnccl-ofi-tuner.so libnccl-tuner-ofi.so; do ln -s libnccl-net-ofi.so "$lib/$tuner"; done
    echo "/opt/amazon/ofi-nccl/$PLUGIN_LIBDIR" > "$work/etc/ld.so.conf.d/100_ofinccl.conf"
    pack
}
plugin_package libnccl-ofi libnccl-net.so
plugin_package libnccl-ofi-ngc-v3 ''

for deb in /debs/*.deb; do
    source=$(dpkg-deb --field "$deb" Source)
    if [ "${source%% *}" = rdma-core ] || [ "$(dpkg-deb --field "$deb" Package)" = rdma-core ]; then cp "$deb" "$debs/rdma-core/"; fi
done

install --mode=755 "$here/efa_installer.sh" "$tree/efa_installer.sh"
cp "$here/flags" "$tree/flags"
echo "EFA_INSTALLER_VERSION=$EFA_INSTALLER" > "$tree/env.sh"
tar --create --gzip --file "$out/aws-efa-installer-$EFA_INSTALLER.tar.gz" --directory /tmp --sort=name --mtime=@0 --owner=0 --group=0 \
    aws-efa-installer
