#!/bin/sh
# make-repository.sh FOLDER: an apt repository of /debs laid out as Alibaba's is, and GPGKEY, the key that signs it.
set -eu
out=$1
suite=dists/$ERDMA_APT/erdma
arch=$(dpkg --print-architecture)
mkdir -p "$out/pool" "$out/$suite/main/binary-$arch"

# wanted DEB: whether facts/ know the repository to have it; a newer Debian has some under another name, and says so.
wanted() {
    for name in $ERDMA_APT_PACKAGES; do
        dpkg-deb --field "$1" Package Provides | grep -q -E "[ ,]$name( |,|\$)" && return
    done
    return 1
}

# Newer than Debian's own, as Alibaba's are newer than Ubuntu's: apt then takes them because of their version.
for deb in /debs/*.deb; do
    wanted "$deb" || continue
    work=$(mktemp -d)
    dpkg-deb --raw-extract "$deb" "$work"
    sed -i -E 's/^Version: (.*)/Version: \1+standin/' "$work/DEBIAN/control"
    dpkg-deb --build -Znone --root-owner-group "$work" "$out/pool" > /dev/null
done

cd "$out"
apt-ftparchive packages pool > "$suite/main/binary-$arch/Packages"
apt-ftparchive -o "APT::FTPArchive::Release::Suite=$ERDMA_APT/erdma" -o APT::FTPArchive::Release::Components=main \
    -o "APT::FTPArchive::Release::Architectures=$arch" release "$suite" > /tmp/Release
export GNUPGHOME=/tmp/gnupg
mkdir -m 0700 "$GNUPGHOME"
gpg --batch --quiet --passphrase '' --quick-generate-key "rdma-images, in place of Alibaba's key" rsa3072 sign never
gpg --batch --quiet --clearsign --output "$suite/InRelease" /tmp/Release
gpg --armor --export > GPGKEY
