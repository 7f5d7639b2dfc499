#!/usr/bin/env bash
# Two workers and a launcher, each in a network of its own on this machine: mpi.sh TREE FOLDER HOME UID PORT OPERATOR GROUPS
# TREE has Debian's Open MPI and OpenSSH unpacked and not installed; FOLDER has worker.sh, launcher.sh, environment.sh and
# usr, with what images have of ours.
# They run as the user UID, with GROUPS beside its own, whose home is HOME, and their sshd listens on PORT. OPERATOR is who mounts keys.
# As root; the caller has put it into a mount namespace of its own (unshare --mount).
set -euo pipefail
tree=$1 folder=$2 home=$3 uid=$4 port=$5 operator=$6 groups=$7 name=rdma$$
mount -t overlay overlay -o "lowerdir=$folder/usr:$tree/usr:/usr" /usr
for place in /root /run; do mount -t tmpfs none "$place"; done
mkdir "$folder/ssh" "$folder/bin"
mount --bind "$folder/ssh" /etc/ssh
ln -s /usr/bin/orterun "$folder/bin/mpirun"  # what update-alternatives does
# As the image's ssh stage has it.
printf 'StrictHostKeyChecking no\nUserKnownHostsFile /dev/null\n' > /etc/ssh/ssh_config
printf 'StrictModes no\nPermitRootLogin yes\n' > /etc/ssh/sshd_config
{ grep -v "^sshd:\|^[^:]*:[^:]*:$uid:" /etc/passwd; echo 'sshd:x:999:65534::/run/sshd:/usr/sbin/nologin'; } > "$folder/passwd"
echo "ranks:x:$uid:$uid::$home:/bin/bash" >> "$folder/passwd"
mount --bind "$folder/passwd" /etc/passwd
mkdir -p "$home"
if [ "$operator" = trainer ]; then  # root's, with the modes that Kubeflow Trainer 2.3 gives (pkg/constants/constants.go)
  mkdir /run/mpi-ssh
  ssh-keygen -q -t ecdsa -b 521 -m PEM -N '' -f /run/mpi-ssh/id_rsa
  cp /run/mpi-ssh/id_rsa.pub /run/mpi-ssh/authorized_keys
  chmod 640 /run/mpi-ssh/id_rsa
  chmod 644 /run/mpi-ssh/id_rsa.pub /run/mpi-ssh/authorized_keys
else
  mkdir -m 700 "$home/.ssh"
  ssh-keygen -q -t ed25519 -N '' -f "$home/.ssh/id_ed25519"
  cp "$home/.ssh/id_ed25519.pub" "$home/.ssh/authorized_keys"
fi
chown -R "$uid:$uid" "$home" "$folder/ssh"
if [ -n "$groups" ]; then groups="--groups=$groups"; else groups=--clear-groups; fi
as_user="setpriv --reuid=$uid --regid=$uid $groups"

end() {
  for number in 1 2 3; do
    ip netns pids "$name-$number" | xargs --no-run-if-empty kill || true # it may have ended meanwhile
    ip netns del "$name-$number"
  done
  ip link del "$name"
}
ip link add "$name" type bridge
ip link set "$name" up
for number in 1 2 3; do
  ip netns add "$name-$number"
  ip link add "$name-$number" type veth peer name eth0 netns "$name-$number"
  ip link set "$name-$number" master "$name" up
  ip -n "$name-$number" address add "10.77.0.$number/24" dev eth0
  ip -n "$name-$number" link set eth0 up
  ip -n "$name-$number" link set lo up
done
trap end EXIT
for number in 2 3; do
  ip netns exec "$name-$number" unshare --uts sh -c "hostname worker-$number; export RDMA_IMAGES_NODE=node-$number; exec $as_user sh $folder/worker.sh" \
    > "$folder/worker-$number.log" 2>&1 &
  echo "10.77.0.$number slots=2" >> "$folder/hostfile"
done
for number in 2 3; do
  for _ in $(seq 300); do
    ip netns exec "$name-1" bash -c ": < /dev/tcp/10.77.0.$number/$port" 2>/dev/null && continue 2
    sleep 0.2
  done
  cat "$folder"/worker-*.log >&2
  exit 1
done
. "$folder/environment.sh"
export OMPI_MCA_orte_default_hostfile="$folder/hostfile" OMPI_MCA_orte_keep_fqdn_hostnames=true
export OMPI_MCA_plm_rsh_args="-o ConnectionAttempts=10" PATH="$folder/bin:$PATH"
# shellcheck disable=SC2086 # a command and its options, or nothing
ip netns exec "$name-1" $as_user sh "$folder/launcher.sh"
