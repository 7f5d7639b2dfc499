#!/usr/bin/env bash
# Two names of this machine, one and two, behind a real sshd: ssh.sh TREE FOLDER COMMAND…. Runs COMMAND where ssh reaches them.
# TREE has Debian's OpenSSH unpacked and not installed; programs in FOLDER/bin come first on either side.
# As root; the caller has put it into mount and network namespaces of its own (unshare --mount --net).
set -euo pipefail
tree=$1 folder=$2
shift 2
mount -t overlay overlay -o "lowerdir=$tree/usr:/usr" /usr
mkdir "$folder/ssh"
mount --bind "$folder/ssh" /etc/ssh
mount -t tmpfs none /run
mkdir /run/sshd
ssh-keygen -q -t ed25519 -N '' -f "$folder/key"
ssh-keygen -q -t ed25519 -N '' -f "$folder/host"
cat > /etc/ssh/ssh_config <<C
Host one two
  HostName 127.0.0.1
  IdentityFile $folder/key
  StrictHostKeyChecking no
  UserKnownHostsFile /dev/null
  LogLevel ERROR
C
cat > /etc/ssh/sshd_config <<C
HostKey $folder/host
AuthorizedKeysFile $folder/key.pub
StrictModes no
PermitRootLogin yes
SetEnv PATH=$folder/bin:/usr/bin:/bin
C
{ grep -v '^sshd:' /etc/passwd; echo 'sshd:x:999:65534::/run/sshd:/usr/sbin/nologin'; } > "$folder/passwd"
mount --bind "$folder/passwd" /etc/passwd
ip link set lo up
/usr/sbin/sshd
trap 'kill "$(cat /run/sshd.pid)"' EXIT
PATH=$folder/bin:$PATH "$@"
