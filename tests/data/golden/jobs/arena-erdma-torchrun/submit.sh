#!/usr/bin/env bash
# 16 ranks on 2 x ecs.ebmgn8v.48xlarge. job.json says why each value is what it is.
set -euo pipefail
# Never --rdma: it asks for rdma/hca, which is Lingjun's. --workers counts the master.
exec arena submit pytorch \
  --name="${RDMA_IMAGES_RUN:-erdma-pytorch-ebmgn8v-48xlarge-2}" \
  --namespace=default \
  --image=123456789012.dkr.ecr.us-west-2.amazonaws.com/team/image@sha256:5e5e5e5e5e5e5e5e5e5e5e5e5e5e5e5e5e5e5e5e5e5e5e5e5e5e5e5e5e5e5e5e \
  --image-pull-policy=IfNotPresent \
  --workers=2 \
  --gpus=8 \
  --nproc-per-node=8 \
  --device=aliyun/erdma=1 \
  --memory=786432Mi \
  --share-memory=393216Mi \
  --data-dir=/sys:/host-sys \
  --working-dir=/workspace \
  --selector=node.kubernetes.io/instance-type=ecs.ebmgn8v.48xlarge \
  --selector=aliyun.accelerator/erdma=true \
  --selector=kubernetes.io/arch=amd64 \
  --toleration=nvidia.com/gpu=:NoSchedule,Exists \
  --gang \
  --retry=0 \
  --clean-task-policy=None \
  --env=NCCL_DEBUG=INFO \
  --env=NCCL_DEBUG_FILE=/tmp/nccl/%h.%p.log \
  --env=NCCL_SOCKET_IFNAME=eth0 \
  --env=NCCL_IB_HCA=erdma \
  --env=NCCL_IB_GID_INDEX=-1 \
  --env=NCCL_IB_ADDR_RANGE=10.0.0.0/8 \
  'mkdir -p /tmp/nccl; for i in $(cat /sys/class/infiniband/*/ports/1/gid_attrs/ndevs/* 2>/dev/null | sort -u); do [ "$(cat /host-sys/class/net/$i/mtu)" = 8500 ] || { echo "$(hostname), $i, the MTU is not 8500" >&2; exit 1; }; done; torchrun --nnodes=2 --nproc-per-node=8 --node-rank=$RANK --master-addr=$MASTER_ADDR --master-port=29500 --max-restarts=0 train.py --data '"'"'it'"'"'"'"'"'"'"'"'s a test'"'"' && status=0 || status=$?; tail -v -n +1 /tmp/nccl/*.log; exit $status'
