#!/bin/sh
# wheel-layer PLATFORM [PYTHON] < requirements with hashes
# Installs the wheels into /layer/opt/venv, as the same bytes wherever and whenever this runs; what only a devel image
# needs goes to /devel/opt/venv.
set -eu
platform=$1 python=${2-}
export SSL_CERT_FILE=/run/secrets/ca-bundle UV_CONFIG_FILE=/run/secrets/uv-config NETRC=/run/secrets/netrc
# Unpacked beside its destination and linked into it: a wheel is written once. A cache mount would hold it a second
# time, unpacked, for builds that BuildKit's own cache of this step already spares.
export UV_CACHE_DIR=/layer/unpacked UV_LINK_MODE=hardlink UV_NO_PROGRESS=1
requirements=$(mktemp)
cat > "$requirements"

# The wheels are chosen for the image's platform and Python; the builder's own Python only runs uv's layout script.
/opt/uv/bin/uv pip install --quiet --python /opt/venv/bin/python --prefix /layer/opt/venv \
    --python-platform "$platform" ${python:+--python-version "$python"} \
    --no-deps --only-binary :all: --require-hashes --requirement "$requirements"
rm -rf "$UV_CACHE_DIR"

# One folder for every Python: see the stage that makes /opt/venv/lib/python3.x/site-packages a link to it.
mv /layer/opt/venv/lib/python3.*/site-packages /layer/opt/venv/site-packages
rm -rf /layer/opt/venv/lib /layer/opt/venv/.lock /layer/opt/venv/CACHEDIR.TAG
mkdir -p /devel/opt/venv/site-packages
split-devel /layer/opt/venv/site-packages /devel/opt/venv/site-packages /usr/local/share/devel-files.txt

# A wheel cannot hold links: a library with three names is in it three times.
hardlink --quiet --ignore-time --ignore-owner --minimum-size 64K /layer

# 1980-01-01, the earliest time that a wheel can hold; parents' times too, since they are in the layer.
find /layer /devel -exec touch --no-dereference --date=1980-01-01T00:00:00Z {} +
