# shellcheck shell=bash disable=SC2154
# For build-image: Debian packages as files, of the releases that this machine's apt knows. Wants
# $cache and $of, "-backports" for the kernel of that release. None is installed, and no privilege is needed: apt works as a client with no package
# installed (so that it names every dependency) and with lists of its own.

mkdir -p "$cache/debs/partial" "$cache/lists/partial"
: >"$cache/status"
apt=(-o Dir::State::status="$cache/status" -o Dir::State::lists="$cache/lists"
    -o Dir::Cache::archives="$cache/debs" -o Dir::Cache::pkgcache= -o Dir::Cache::srcpkgcache=
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
            (cd "$cache/debs" && apt-get "${apt[@]}" download "$spec" >&2)
            file=$(compgen -G "$cache/debs/${name}_${wanted//:/%3a}_*.deb")
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
