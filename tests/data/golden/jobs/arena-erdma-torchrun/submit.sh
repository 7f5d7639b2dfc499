#!/usr/bin/env bash
# 16 ranks on 2 x ecs.ebmgn8v.48xlarge. job.json says why each value is what it is.
set -euo pipefail
# One line of sh, whose variables are the container's.
# shellcheck disable=SC2016
start=(
  exec
  rdma-preflight --require erdma --adapters 1 --gpus 8 --mtu 8500
  --nodes 2 --node '$RANK' --first '$MASTER_ADDR' --print-log --
  torchrun --nnodes=2 --nproc-per-node=8 '--node-rank=$RANK'
  '--master-addr=$MASTER_ADDR' --master-port=29500 --max-restarts=0
  train.py
  --data
  ''"'"'it'"'"'"'"'"'"'"'"'s a test'"'"''
)
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
  --working-dir=/workspace \
  --selector=node.kubernetes.io/instance-type=ecs.ebmgn8v.48xlarge \
  --selector=aliyun.accelerator/erdma=true \
  --selector=kubernetes.io/arch=amd64 \
  --toleration=nvidia.com/gpu=:NoSchedule,Exists \
  --gang \
  --retry=0 \
  --clean-task-policy=None \
  --env=NCCL_DEBUG=INFO \
  --env=NCCL_SOCKET_IFNAME=eth0 \
  --env=NCCL_IB_HCA=erdma \
  --env=NCCL_IB_GID_INDEX=-1 \
  --env=NCCL_IB_ADDR_RANGE=10.0.0.0/8 \
  "${start[*]}"
