#!/usr/bin/env bash
# Docker with containerd's image store, in which an image has the digest that a registry gives it. Docker's settings are
# added to on GitHub's own machines; on another it is not ours to change them and to restart what others run.
set -euo pipefail

settings=${DAEMON_JSON:-/etc/docker/daemon.json}
has_it() { [[ $(docker info --format '{{.DriverStatus}}') == *containerd* ]]; }

if has_it; then exit 0; fi
if [ "${RUNNER_ENVIRONMENT:-}" != github-hosted ]; then
  echo "Docker here keeps images in its classic store: set features.containerd-snapshotter in $settings, restart it" >&2
  exit 1
fi
before='{}'
if [ -f "$settings" ]; then before=$(sudo cat "$settings"); fi
after=$(jq '.features["containerd-snapshotter"] = true' <<< "$before")
sudo tee "$settings" <<< "$after" > /dev/null
sudo systemctl restart docker
if ! has_it; then
  echo "Docker has been restarted and still keeps images in its classic store: is it older than 24?" >&2
  exit 1
fi
