#!/bin/bash
# A stand-in for AWS's installer (see make-tarball.sh): takes the flags that the real one of this version takes and refuses others.
set -eu
cd "$(dirname "$0")"
. ./env.sh

yes=0 kmod=1 verify=1 ngc=auto minimal=0 mpi=both
# known FLAG: whether the real installer of this version has it, by the table beside this file.
known() {
    while read -r short long since _; do
        if [[ $short != '#' && ($1 == "$short" || $1 == "$long") ]]; then
            [[ $since == - ]] || dpkg --compare-versions "$EFA_INSTALLER_VERSION" ge "$since"
            return
        fi
    done < flags
    return 1
}
for flag in "$@"; do
    if ! known "${flag%%=*}"; then
        echo "efa_installer.sh $EFA_INSTALLER_VERSION (stand-in): unrecognized option '$flag'" >&2
        exit 1
    fi
    case $flag in
        -y | --yes) yes=1 ;;
        -k | --skip-kmod) kmod=0 ;;
        -n | --no-verify) verify=0 ;;
        -m | --minimal) minimal=1 ;;
        --mpi=*) mpi=${flag#*=} ;;
        --build-ngc) ngc=1 ;;
        --disable-ngc | --disable-build-ngc) ngc=0 ;;
    esac
done
if [ $yes = 0 ]; then echo "efa_installer.sh (stand-in): nobody is here to confirm: use --yes" >&2; exit 1; fi
if [ $kmod = 1 ]; then echo "efa_installer.sh (stand-in): no kernel to build for: use --skip-kmod" >&2; exit 1; fi

. /etc/os-release
packages=DEBS/$(echo "$ID" | tr '[:lower:]' '[:upper:]')$(echo "$VERSION_ID" | tr -d .)/$(uname -m)
if [ ! -d "$packages" ]; then echo "efa_installer.sh (stand-in): unsupported operating system: no $packages" >&2; exit 1; fi

# The real installer, since it has the flags about NGC, takes a base with NVIDIA's entry point for an NGC image unless told
# otherwise: it then leaves rdma-core alone and installs a plugin package without libnccl-net.so.
if [ $ngc = auto ]; then
    ngc=0
    if known --disable-ngc && [ -e /opt/nvidia/nvidia_entrypoint.sh ]; then ngc=1; fi
fi

install=()
if [ $ngc = 0 ]; then install+=("$packages"/rdma-core/*.deb); fi
if [ $minimal = 0 ]; then
    install+=("$packages"/{libfabric1-aws,libfabric-aws-bin,libfabric-aws-dev,efa-profile}_*.deb)
    if [ "$mpi" != openmpi5 ]; then install+=("$packages"/{openmpi40-aws,libucx0}_*.deb); fi
    if [ $ngc = 1 ]; then install+=("$packages"/libnccl-ofi-ngc-v3_*.deb); else install+=("$packages"/libnccl-ofi_*.deb); fi
fi
apt-get install --quiet --yes --no-install-recommends --allow-downgrades "${install[@]/#/./}"

names=()
for package in "${install[@]}"; do names+=("$(basename "${package%.deb}")"); done
mkdir -p /opt/amazon
cat > /opt/amazon/efa_installed_packages <<EOF
# EFA installer version: $EFA_INSTALLER_VERSION
# Debug packages installed: no
# Packages installed:
${names[*]}
EOF
ldconfig
if [ $verify = 1 ]; then /opt/amazon/efa/bin/fi_pingpong -p efa; fi
