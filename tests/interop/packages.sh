# shellcheck shell=bash disable=SC2154
# For build-image: Debian packages as files, of the releases that this machine's apt knows. Wants
# $cache and $of, "-backports" for the kernel of that release. None is installed, and no privilege is
# needed: apt works as a client with no package installed (so that it names every dependency) and
# with lists of its own.

mkdir -p "$cache/debs/partial" "$cache/lists/partial"
: >"$cache/status"
apt=(-o Dir::State::status="$cache/status" -o Dir::State::lists="$cache/lists"
    -o Dir::Cache::archives="$cache/debs" -o Dir::Cache::pkgcache="$cache/packages" -o Dir::Cache::srcpkgcache=
    -o APT::Install-Recommends=false -o Debug::NoLocking=true -qq)
[ "$(id -u)" -ne 0 ] || apt+=(-o APT::Sandbox::User=root)

# Where the kernel is taken from; nothing else is.
release=()

# Downloads the package lists, and those of the release's backports if the kernel is to be theirs.
update() {
    local codename keys=/usr/share/keyrings/debian-archive-keyring.gpg
    apt-get "${apt[@]}" update >&2 || say "no package lists came: using those of before"
    [ -n "$of" ] || return 0
    codename=$(. /etc/os-release && echo "$VERSION_CODENAME")
    mkdir -p "$cache/sources"
    cp -rL /etc/apt/sources.list.d/. "$cache/sources"
    # Backports come from where the release's own packages do.
    apt-get "${apt[@]}" indextargets 'Created-By: Packages' "Release: $codename" \
        --format "deb [signed-by=$keys] \$(REPO_URI) $codename$of \$(COMPONENT)" |
        sort -u >"$cache/sources/backports.list"
    [ -s "$cache/sources/backports.list" ] || fail "apt knows no source of $codename's packages"
    apt+=(-o Dir::Etc::sourceparts="$cache/sources")
    release=(-o APT::Default-Release="$codename$of")
    apt-get "${apt[@]}" update >&2 || say "no package lists came: using those of before"
}

# The kernels of a series that can be had from the release: lines of "VERSION KERNEL", the newest first.
kernels() {
    local series=$1 names
    mapfile -t names < <(apt-cache "${apt[@]}" pkgnames "linux-image-$series." |
        grep -E -- '^linux-image-[^-]+(-[0-9]+)?-amd64$')
    apt-cache "${apt[@]}" madison "${names[@]}" |
        sed -nE "s/^ *linux-image-([^ ]+) +\| +([^ ]+) +\| .*$of\/.*/\2 \1/p" | sort -Vru
}

# What siw.ko is built from for kernel $1: the names of the packages, but for the source. The kernel's
# version is $2: it is asked for by name, for apt would else show another one.
headers_of() {
    echo "linux-headers-$1"
    apt-cache "${apt[@]}" show "linux-headers-$1=$2" 2>/dev/null |
        sed -n 's/^Depends: //p' | grep -oE 'linux-(headers|kbuild)-[^ ,]+' | sort -u
}

# Sets $kernel, $version, $series and $parts, the packages that siw.ko is built from. Debian publishes a
# signed image later than the packages beside it, which may be of the next version by then. So the newest
# version that all of them have is taken.
choose_kernel() {
    local part lack passed_over=()
    series=$(apt-cache "${apt[@]}" "${release[@]}" depends linux-image-amd64 |
        sed -nE 's/.*Depends: linux-image-([0-9]+\.[0-9]+).*/\1/p')
    [ -n "$series" ] || fail "apt knows no linux-image-amd64: Debian's packages are needed"
    while read -r version kernel; do
        mapfile -t parts < <(headers_of "$kernel" "$version" || true; echo "linux-source-$series")
        lack=()
        for part in "${parts[@]}"; do
            # It fails for a package that it doesn't know only: of a version that there isn't it prints nothing.
            [ -n "$(apt-cache "${apt[@]}" show "$part=$version" 2>/dev/null)" ] || lack+=("$part")
        done
        if [ ${#lack[@]} -eq 0 ]; then
            say "kernel $kernel ($version), the newest of which there are image, headers, kbuild and source"
            return
        fi
        passed_over+=("$version has no ${lack[*]}")
        say "passed over: ${passed_over[-1]}"
    done < <(kernels "$series")
    fail "no version of Linux $series has image, headers, kbuild and source in apt's lists: $(
        printf '%s; ' "${passed_over[@]:-there is no image}")"
}

# Downloads what "$@" needs and prints the paths of the packages.
fetch() {
    apt-get "${apt[@]}" -y --download-only install "$@" >&2
    apt-get "${apt[@]}" -s install "$@" |
        sed -nE 's/^Inst ([^ ]+) \(([^ ]+) .*\[([a-z0-9]+)\]\).*/\1_\2_\3.deb/p' |
        sed "s/:/%3a/g; s|^|$cache/debs/|"
}

# Downloads single packages, each given as name=version, and prints their paths.
fetch_only() {
    local spec
    for spec; do
        local name=${spec%%=*} wanted=${spec#*=} file
        file=$(compgen -G "$cache/debs/${name}_${wanted//:/%3a}_*.deb") || {
            (cd "$cache/debs" && apt-get "${apt[@]}" download "$spec" >&2) || fail "$spec did not come"
            file=$(compgen -G "$cache/debs/${name}_${wanted//:/%3a}_*.deb") || fail "$spec came under another name"
        }
        echo "$file"
    done
}

# Unpacks packages into a root.
unpack() {
    local root=$1 deb
    shift
    for deb; do
        dpkg-deb --fsys-tarfile "$deb" | tar -x --keep-directory-symlink -C "$root" \
            --exclude='./usr/share/doc/*' --exclude='./usr/share/man/*' \
            --exclude='./usr/share/locale/*' --exclude='./usr/share/info/*' \
            --exclude='./usr/share/perl*' --exclude='./usr/lib/*/*perl*' --exclude='./usr/bin/perl*'
    done
}

# An empty root whose /bin, /sbin and /lib are links into /usr.
usr_root() {
    rm -rf "$1"
    mkdir -p "$1"/usr/{bin,sbin,lib,lib64}
    ln -s usr/bin usr/sbin usr/lib usr/lib64 "$1"
}
