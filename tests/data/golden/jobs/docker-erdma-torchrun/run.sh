#!/usr/bin/env bash
# 16 ranks on 2 x ecs.ebmgn8v.48xlarge. job.json says why each value is what it is.
set -euo pipefail
name=${RDMA_IMAGES_RUN:-erdma-pytorch-ebmgn8v-48xlarge-2}  # of the containers
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

master=$(ssh -G "${hosts[0]}" | sed -n 's/^hostname //p')
start='set -eu
exec rdma-preflight --require erdma --adapters 1 --gpus 8 --mtu 8500 --print-log \
  --nodes 2 --node "$1" --first "$2" -- \
  torchrun --nnodes=2 --nproc-per-node=8 --node-rank="$1" \
  --master-addr="$2" --master-port=29500 --max-restarts=0 \
  train.py --data '"'"'it'"'"'"'"'"'"'"'"'s a test'"'"'
'
running=()
for rank in "${!hosts[@]}"; do
  remote "${hosts[$rank]}" docker run --name="$name" \
  --gpus=all --device=/dev/infiniband --ulimit=memlock=-1:-1 --cap-add=IPC_LOCK --shm-size=64g --network=host \
  --env=NCCL_DEBUG=INFO \
  --env=NCCL_SOCKET_IFNAME=eth0 \
  --env=NCCL_IB_HCA=erdma \
  --env=NCCL_IB_GID_INDEX=-1 \
  --env=NCCL_IB_ADDR_RANGE=10.0.0.0/8 \
  123456789012.dkr.ecr.us-west-2.amazonaws.com/team/image@sha256:5e5e5e5e5e5e5e5e5e5e5e5e5e5e5e5e5e5e5e5e5e5e5e5e5e5e5e5e5e5e5e5e \
  sh -c "$start" start "$rank" "$master" > "erdma-pytorch-ebmgn8v-48xlarge-2-$rank.log" 2>&1 &
  running+=($!)
done
status=0
for process in "${running[@]}"; do wait "$process" || status=$?; done
exit "$status"
