#!/usr/bin/env bash
# A Slurm of $SLURM_NODES nodes, or two, with eight GPUs each on this machine: slurm.sh TREE STATE COMMAND…
# TREE has Debian's packages unpacked and not installed; STATE is an empty folder for all that is written. Runs COMMAND where
# Slurm answers, and ends all that it started. As root; the caller has put it into a mount namespace of its own
# (unshare --mount), because Slurm's programs look for their plugins where they would be installed.
set -euo pipefail
tree=$1 state=$2 nodes=${SLURM_NODES:-2} port=${SLURM_PORT:-26817}
shift 2
mapfile -t names < <(seq --format=n%g "$nodes")
for program in "$tree"/usr/sbin/*-wlm; do ln -sf "$(basename "$program")" "${program%-wlm}"; done  # what update-alternatives does
mount -t overlay overlay -o "lowerdir=$tree/usr:/usr" /usr
[ -z "${SLURM_HOSTS:-}" ] || mount --bind "$SLURM_HOSTS" /etc/hosts
mkdir -p "$state"/{etc,run,log,ctld,oci,gpus} "${names[@]/#/$state/spool/}"
# A GPU is a character device; one by its count alone is refused.
for gpu in 0 1 2 3 4 5 6 7; do mknod "$state/gpus/gpu$gpu" c 1 3; done
(umask 077; head -c 1024 /dev/urandom > "$state/etc/munge.key")
echo "NodeName=n[1-$nodes] Name=gpu File=$state/gpus/gpu[0-7]" > "$state/etc/gres.conf"
cat > "$state/etc/slurm.conf" <<C
ClusterName=test
SlurmctldHost=localhost(127.0.0.1)
SlurmUser=root
SlurmctldPort=$port
AuthInfo=socket=$state/run/munge.sock,cred_expire=10
StateSaveLocation=$state/ctld
SlurmdSpoolDir=$state/spool/%n
SlurmctldPidFile=$state/run/slurmctld.pid
SlurmdPidFile=$state/run/slurmd-%n.pid
SlurmctldLogFile=$state/log/slurmctld.log
SlurmdLogFile=$state/log/slurmd-%n.log
ProctrackType=proctrack/pgid
TaskPlugin=task/none
SwitchType=switch/none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU_Memory
GresTypes=gpu
SlurmdParameters=config_overrides
NodeName=n[1-$nodes] NodeHostname=localhost NodeAddr=127.0.0.1 Port=[$((port + 1))-$((port + nodes))] CPUs=16 RealMemory=4000 Gres=gpu:8
PartitionName=p Nodes=ALL Default=YES
C
cat > "$state/etc/oci.conf" <<C
ContainerPath=$state/oci/%n-%j-%s-%t
RunTimeQuery="runc --root=$state/run/runc state %n.%u.%j.%s.%t"
RunTimeKill="runc --root=$state/run/runc kill %n.%u.%j.%s.%t"
RunTimeDelete="runc --root=$state/run/runc delete --force %n.%u.%j.%s.%t"
RunTimeRun="runc --root=$state/run/runc run --bundle %b %n.%u.%j.%s.%t"
C
[ -z "${SLURM_SPANK:-}" ] || echo "required $SLURM_SPANK" > "$state/etc/plugstack.conf"
export PATH=${SLURM_PROGRAMS:+$SLURM_PROGRAMS:}/usr/sbin:/usr/bin:/sbin:/bin SLURM_CONF=$state/etc/slurm.conf
end() {
  for program in "${names[@]/#/slurmd-}" slurmctld munged; do
    [ ! -f "$state/run/$program.pid" ] || kill "$(cat "$state/run/$program.pid")" || true
  done
}
trap end EXIT
munged --force --key-file="$state/etc/munge.key" --socket="$state/run/munge.sock" --pid-file="$state/run/munged.pid" \
  --log-file="$state/log/munged.log" --seed-file="$state/run/seed"
slurmctld
for name in "${names[@]}"; do slurmd -N "$name"; done
for _ in $(seq 600); do
  [ "$(sinfo --noheader --format='%T %D')" != "idle $nodes" ] || break
  sleep 0.2
done
"$@"
