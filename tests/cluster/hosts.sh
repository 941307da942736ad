#!/bin/bash
# What the machines of hosts.py do when they are switched on: hosts.sh client|plug|host ARGUMENTS... FOLDERS_TO_KEEP...
# Each prints `ready` and lives until its standard input ends.
set -eu

hide() { # hide FOLDER KEPT...: an empty folder in the place of this one, but for what of KEPT lies in it
    local folder=$1 kept
    shift
    mkdir -p /run/hidden
    mount --rbind "$folder" /run/hidden
    mount -t tmpfs -o "mode=$(stat -c %a "$folder")" tmpfs "$folder"
    for kept; do
        case $kept in "$folder"/*)
            mkdir -p "$kept"
            mount --rbind "/run/hidden${kept#"$folder"}" "$kept"
        esac
    done
    umount --lazy /run/hidden
}

client() { # client HOME: the user's machine, with the bridge and a network of its own
    local home=$1
    mount --bind /dev/null /etc/resolv.conf # a name that is not in /etc/hosts is unknown at once
    mount -t tmpfs -o mode=755 tmpfs /run
    mkdir /run/netns /run/sshd
    printf '127.0.0.1 localhost\n10.77.0.1 client\n' > /run/hosts
    mount --bind /run/hosts /etc/hosts
    hide "$home" "${@:2}"
    hide /tmp "${@:2}"
    hostname client
    ip link set lo up
    ip link add lab type bridge
    ip address add 10.77.0.1/24 dev lab
    ip link set lab up
    install -d -m 700 "$home/.ssh"
    ssh-keygen -q -t ed25519 -N '' -f "$home/.ssh/id_ed25519"
    ssh-keygen -q -t ed25519 -N '' -f /run/host_key
    cp "$home/.ssh/id_ed25519.pub" /run/authorized_keys
    echo ready
    read -r _
}

plug() { # plug NAME ADDRESS ROOT HOME: on the user's machine, connect and switch on another
    local name=$1 address=$2
    echo "$address $name" >> /run/hosts
    ip netns add "$name"
    ip link add "$name" type veth peer name eth0 netns "$name"
    ip link set "$name" master lab up
    ip -n "$name" link set lo up
    ip -n "$name" address add "$address/24" dev eth0
    ip -n "$name" link set eth0 up
    ip -n "$name" route add default via 10.77.0.1 # leads nowhere; Ray needs one to learn its own address
    exec ip netns exec "$name" unshare --mount --pid --uts --fork --kill-child --mount-proc bash "$0" host "$name" "${@:3}"
}

host() { # host NAME ROOT HOME: a machine with an empty home and /tmp and without the checkout
    local name=$1 root=$2 home=$3 folder
    for folder in "$home" /tmp "$root"; do
        if [ -d "$folder" ]; then hide "$folder" "${@:4}"; fi # one may be hidden with another
    done
    cp -r /etc/skel/. "$home"
    mount -t tmpfs tmpfs /dev/shm
    hostname "$name"
    "$(command -v sshd)" -f /dev/null -E "/run/sshd-$name.log" -o HostKey=/run/host_key -o PidFile=none -o UsePAM=no \
        -o AuthorizedKeysFile=/run/authorized_keys -o MaxStartups=100 < /dev/null
    until nc -z localhost 22; do sleep 0.05; done
    echo ready
    read -r _
}

"$@"
