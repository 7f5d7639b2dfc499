#!/bin/sh
# wheel-layer PYTHON PLATFORM < requirements with hashes
# Installs the wheels into /layer/opt/venv, as the same bytes wherever and whenever this runs.
set -eu
python=$1 platform=$2
export SSL_CERT_FILE=/run/secrets/ca-bundle UV_CONFIG_FILE=/run/secrets/uv-config NETRC=/run/secrets/netrc
export UV_CACHE_DIR=/var/cache/uv UV_LINK_MODE=copy UV_NO_PROGRESS=1
requirements=$(mktemp)
cat > "$requirements"

# The wheels are chosen for the image's Python and platform; the builder's own Python only runs uv's layout script.
/opt/pip/bin/uv pip install --quiet --python /opt/venv/bin/python --prefix /layer/opt/venv \
    --python-version "$python" --python-platform "$platform" \
    --no-deps --only-binary :all: --require-hashes --requirement "$requirements"

# One folder for every Python: see the stage that makes /opt/venv/lib/python3.x/site-packages a link to it.
mv /layer/opt/venv/lib/python3.*/site-packages /layer/opt/venv/site-packages
rm -rf /layer/opt/venv/lib /layer/opt/venv/.lock
# Written by concurrent installers in an order of their own, and read by nobody after installation.
rm -f /layer/opt/venv/CACHEDIR.TAG

# 1980-01-01, the earliest time that a wheel can hold; parents' times too, since they are in the layer.
find /layer -exec touch --no-dereference --date=1980-01-01T00:00:00Z {} +
