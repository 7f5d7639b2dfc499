#!/usr/bin/env bash
# A docker client configuration that is the job's own, for the steps to come: what they log in to is not written into the
# home of a runner that other jobs share. It has the machine's settings, and none of its logins.
set -euo pipefail

machine=${DOCKER_CONFIG:-$HOME/.docker}
own=$RUNNER_TEMP/docker
mkdir --mode=700 "$own"
for folder in cli-plugins contexts; do # buildx and the engine that was chosen may be this user's alone
  if [ -d "$machine/$folder" ]; then ln --symbolic "$machine/$folder" "$own/$folder"; fi
done
if [ -f "$machine/config.json" ]; then
  # Helpers for single registries stay: they give a login and keep none.
  jq 'del(.auths, .credsStore)' "$machine/config.json" > "$own/config.json"
fi
echo "DOCKER_CONFIG=$own" >> "$GITHUB_ENV"
