# Sourced by run and containers: what tests say, and hosts with Debian 12, made for the test. Each host is an
# overlay over one debootstrapped tree, used as a chroot, or booted by systemd-nspawn in a network namespace.
# shellcheck shell=bash

passed=0
ok() {
    passed=$((passed + 1))
    printf 'ok: %s\n' "$*"
}
# That a text has a word in it.
has() {
    grep -qF -- "$2" <<<"$1" || fail "no \"$2\" in: $1"
}
# A command that must fail; prints what it says.
fails() {
    local said
    ! said=$("$@" 2>&1) || fail "it should fail: $*"
    printf '%s' "$said"
}

# How long a command takes, for the end.
timed() {
    local what=$1 begin end
    shift
    begin=$(date +%s%N)
    "$@"
    end=$(date +%s%N)
    times+=("$(printf '%-40s %3d.%02d s' "$what" $(((end - begin) / 1000000000)) $(((end - begin) / 10000000 % 100)))")
}
times=()
tell_times() {
    heading "times"
    printf '%s\n' "${times[@]}"
}

cache=${RNIC_PACKAGE_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/rnic-package}
# What the packages depend on is there before, so that hosts need no network; and programs of the verbs.
included=systemd-sysv,dbus,iproute2,libelf1,rdmacm-utils,ibverbs-utils,man-db,adduser,procps

declare -A booted=() leader=()
namespaces=()
work=$(mktemp -d /var/tmp/rnic-package.XXXXXX)
mkdir "$work/tree"
mount -t tmpfs -o size=2g rnic-package "$work/tree"

clean_up() {
    local host
    for host in "${!booted[@]}"; do
        kill "${booted[$host]}" 2>/dev/null && wait "${booted[$host]}" || true
    done
    for host in "${namespaces[@]}"; do ip netns delete "$host" || true; done
    for host in "$work"/tree/*/root; do umount "$host" || true; done
    umount "$work/tree" && rmdir "$work/tree" && rm -rf "$work"
}
trap clean_up EXIT

# The tree under all hosts, made once.
base() {
    [ ! -e "$cache/bookworm/.complete" ] || return 0
    rm -rf "$cache/bookworm"
    mkdir -p "$cache"
    debootstrap --variant=minbase --include="$included" bookworm "$cache/bookworm" >"$cache/log" ||
        { tail -n 5 "$cache/log" && fail "debootstrap made no Debian 12: its log is $cache/log"; }
    touch "$cache/bookworm/.complete"
}

# A new host.
make_host() {
    mkdir -p "$work/tree/$1"/{upper,overlay,root}
    mount -t overlay overlay "$work/tree/$1/root" \
        -o "lowerdir=$cache/bookworm,upperdir=$work/tree/$1/upper,workdir=$work/tree/$1/overlay"
}

# Packages of a directory on a host, where `install` finds them under the directory's name.
give() {
    mkdir -p "$work/tree/$1/root/root/$(basename "$2")"
    find "$2" -name 'rnic*.deb' ! -name '*-dbgsym*' -exec cp -t "$work/tree/$1/root/root/$(basename "$2")" {} +
}
install() {
    on "$1" sh -c "apt-get install -y -qq --no-install-recommends /root/$2/*.deb" >"$work/apt" 2>&1 ||
        { cat "$work/apt" && fail "apt-get install on host $1"; }
}
install_packages() {
    give "$1" "$2"
    install "$1" "$(basename "$2")"
}

# A command on a host: in its chroot, or beside its systemd if it is booted.
on() {
    local host=$1
    shift
    if [ -n "${leader[$host]:-}" ]; then
        nsenter --target "${leader[$host]}" --mount --uts --ipc --net --pid --cgroup --root --wd -- \
            env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/root LC_ALL=C DEBIAN_FRONTEND=noninteractive "$@"
    else
        unshare --mount --pid --fork --kill-child --mount-proc="$work/tree/$host/root/proc" \
            chroot "$work/tree/$host/root" \
            env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/root LC_ALL=C DEBIAN_FRONTEND=noninteractive "$@"
    fi
}

# Two network namespaces with a link between their interfaces eth1: 198.18.0.1 and 198.18.0.2.
link_pair() {
    local host number=0
    for host in "$@"; do
        ip netns add "rnic-package-$host"
        namespaces+=("rnic-package-$host")
    done
    ip link add eth1 netns "rnic-package-$1" type veth peer name eth1 netns "rnic-package-$2"
    for host in "$@"; do
        number=$((number + 1))
        ip -n "rnic-package-$host" link set lo up
        ip -n "rnic-package-$host" address add "198.18.0.$number/24" dev eth1
        ip -n "rnic-package-$host" link set eth1 up
    done
}

# Two hosts, booted, in such namespaces.
boot_pair() {
    local host pid
    link_pair "$@"
    for host in "$@"; do
        SYSTEMD_NSPAWN_UNIFIED_HIERARCHY=1 systemd-nspawn --quiet --register=no --keep-unit --boot \
            --directory="$work/tree/$host/root" --machine="rnic-package-$host" \
            --network-namespace-path="/run/netns/rnic-package-$host" --console=read-only --kill-signal=SIGRTMIN+3 \
            --capability=CAP_NET_ADMIN,CAP_BPF,CAP_PERFMON,CAP_IPC_LOCK --system-call-filter="bpf userfaultfd" \
            </dev/null >"$work/$host.console" 2>&1 &
        pid=$!
        booted[$host]=$pid
        until_true 30 "systemd starts on host $host" "$work/$host.console" child_of "$pid" "$host"
        until_true 60 "host $host is up" "$work/$host.console" is_up "$host"
    done
}

child_of() {
    leader[$2]=$(pgrep -P "$1" -n || true)
    [ -n "${leader[$2]}" ] && [ "$(cat "/proc/${leader[$2]}/comm")" = systemd ]
}
is_up() { on "$1" systemctl is-active --quiet multi-user.target; }

# Every file of a host but what the package manager and the log keep.
files() {
    on "$1" find / -xdev \( -path /proc -o -path /sys -o -path /dev -o -path /run -o -path /tmp -o -path /root \
        -o -path /var/tmp -o -path /var/log -o -path /var/cache -o -path /var/lib/dpkg -o -path /var/lib/apt \
        -o -path /var/lib/systemd \) -prune -o -printf '%y %m %u %p\n' | LC_ALL=C sort
}

# SECONDS WHAT LOG COMMAND...
until_true() {
    local seconds=$1 what=$2 log=$3 end=$((SECONDS + $1))
    shift 3
    until "$@"; do
        [ "$SECONDS" -lt "$end" ] || fail "not within $seconds s: $what: $(tail -n 10 "$log")"
        sleep 0.2
    done
}
