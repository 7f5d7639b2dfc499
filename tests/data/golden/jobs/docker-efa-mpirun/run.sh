#!/usr/bin/env bash
# 16 ranks on 2 x p5.48xlarge. job.json says why each value is what it is.
set -euo pipefail
name=${RDMA_IMAGES_RUN:-efa-nccl-tests-p5-48xlarge-2}  # of the containers
hosts=(one two)

# Whatever shell answers there: bash's own quotes are bash's alone.
quoted() { for word; do printf "'%s' " "${word//\'/\'\\\'\'}"; done; }
remote() { ssh -o BatchMode=yes "$1" "$(quoted "${@:2}")"; }
end() {
  for host in "${hosts[@]}"; do
    remote "$host" docker rm --force "$name" >/dev/null 2>&1 || true
  done
}
# What is there already is another run's: it is not this one's to remove.
for host in "${hosts[@]}"; do
  if remote "$host" docker container inspect "$name" >/dev/null 2>&1; then
    echo "$host has a container $name already: wait for that run, or remove it with docker rm --force $name" >&2
    exit 1
  fi
done
trap end EXIT

# mpirun of the first machine's container starts the ranks in the others' over ssh, with a key made for this job alone.
key=$(mktemp -d)
trap 'end; rm -rf "$key"' EXIT
ssh-keygen -q -t ed25519 -N '' -f "$key/id"
public=$(cat "$key/id.pub")
serve='mkdir -p -m 700 /root/.ssh
echo "$1" > /root/.ssh/authorized_keys
set -eu
mkdir -p /run/sshd
ssh-keygen -A
exec /usr/sbin/sshd -D -e -p 2222 ${RDMA_IMAGES_NODE:+-o SetEnv=RDMA_IMAGES_NODE="$RDMA_IMAGES_NODE"}
'
for host in "${hosts[@]}"; do
  remote "$host" docker run --name="$name" --detach \
  --gpus=all --device=/dev/infiniband --ulimit=memlock=-1:-1 --cap-add=IPC_LOCK --shm-size=64g --network=host \
  --env=NCCL_DEBUG=INFO \
  --env='NCCL_SOCKET_IFNAME=^lo,docker,veth,eni,pod-id-link' \
  123456789012.dkr.ecr.us-west-2.amazonaws.com/team/image@sha256:5e5e5e5e5e5e5e5e5e5e5e5e5e5e5e5e5e5e5e5e5e5e5e5e5e5e5e5e5e5e5e5e \
  sh -c "$serve" serve "$public"
done
remote "${hosts[0]}" docker exec --interactive "$name" sh -c 'umask 077; cat > /root/.ssh/id_ed25519' < "$key/id"
addresses=$(for host in "${hosts[@]}"; do ssh -G "$host" | sed -n 's/^hostname //p'; done | paste -sd,)
start='set -eu
exec /opt/amazon/openmpi/bin/mpirun --allow-run-as-root --tag-output -np 16 -N 8 --bind-to none \
  --mca pml ^cm,ucx --mca btl tcp,self --host "$1" \
  --mca plm_rsh_args "-p 2222 -o ConnectionAttempts=10" --mca btl_tcp_if_exclude lo,docker0 --mca oob_tcp_if_exclude lo,docker0 \
  -x NCCL_NET -x FI_PROVIDER -x NCCL_DEBUG -x NCCL_SOCKET_IFNAME \
  -x MASTER_ADDR="${1%%:*}" \
  rdma-preflight --require efa --adapters 32 --gpus 8 --print-log -- \
  /opt/nccl-tests/bin/all_reduce_perf -b 8 -e 16G -f 2 -g 1 -c 1 -n 100
'
slots=$(echo "$addresses" | sed 's/,/:8,/g;s/$/:8/')
remote "${hosts[0]}" docker exec "$name" sh -c "$start" start "$slots"
