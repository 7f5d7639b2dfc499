# The command line of a document on PyTorch over eRDMA with Arena on ACK, as it stands there.
arena submit pytorch \
  --name=pytorch-mnist \
  --namespace=default \
  --workers=2 \
  --gpus=1 \
  --device=aliyun/erdma=1 \
  --nproc-per-node=1 \
  --env NCCL_NET_GDR_LEVEL=1 \
  --env NCCL_P2P_LEVEL=5 \
  --env NCCL_DEBUG=INFO \
  --env NCCL_SOCKET_IFNAME=eth0 \
  --env NCCL_ALGO=Ring \
  --clean-task-policy=None \
  --working-dir=/root \
  --image=kube-ai-registry.cn-shanghai.cr.aliyuncs.com/kube-ai/pytorch:mnist-example \
  --image-pull-policy=Always \
  "torchrun /workspace/arena/examples/pytorch/mnist/main.py --epochs 10000 --backend nccl --data /workspace"
