//! Which kernel the peer is built of, by what the archive has of each.

use std::path::Path;
use std::process::Command;

/// `choose_kernel` of `tests/interop/packages.sh`, with an archive of `$TABLE`: lines of name, version, suite and what
/// the package depends on.
const CHOOSE: &str = r#"
set -euo pipefail
cache=$(mktemp -d) of=$OF
trap 'rm -r "$cache"' EXIT
say() { printf '%s\n' "$*" >&2; }
fail() { say "$*"; exit 1; }
. interop/packages.sh
release=(-o "APT::Default-Release=bookworm$OF")
apt-cache() {
    while [[ $1 == -* ]]; do [ "$1" != -o ] || shift; shift; done
    local what=$1 name version suite needs
    shift
    while read -r name version suite needs; do
        case $what in
            depends) [ "$name" != "$1" ] || [[ $suite != bookworm"$OF" ]] || echo "  Depends: $needs" ;;
            pkgnames) [[ $name != "$1"* ]] || echo "$name" ;;
            madison) [[ " $* " != *" $name "* ]] || echo " $name | $version | http://archive $suite/main amd64 Packages" ;;
            show) [ "$name=$version" != "$1" ] || printf 'Package: %s\nDepends: %s\n' "$name" "$needs" ;;
        esac
    done <<<"$TABLE"
}
choose_kernel
echo "$kernel $version"
"#;

/// What is chosen, or how it failed; and what was said.
fn choose(of: &str, table: &str) -> (Result<String, ()>, String) {
    let tests = Path::new(env!("CARGO_MANIFEST_DIR"));
    let bash = Command::new("bash")
        .args(["-c", CHOOSE])
        .envs([("OF", of), ("TABLE", table)])
        .current_dir(tests)
        .output()
        .expect("bash is there");
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).expect("it writes text");
    let chosen = text(bash.stdout).trim_end().to_owned();
    let chosen = bash.status.success().then_some(chosen).ok_or(());
    (chosen, text(bash.stderr))
}

/// An image and all that its driver is built from.
fn whole(abi: &str, version: &str, suite: &str) -> String {
    format!(
        "linux-image-{abi}-amd64 {version} {suite}\n{}",
        rest(abi, version, suite)
    )
}

fn rest(abi: &str, version: &str, suite: &str) -> String {
    let needs =
        format!("linux-headers-{abi}-common (= {version}), linux-kbuild-6.1, linux-compiler");
    format!(
        "linux-headers-{abi}-amd64 {version} {suite} {needs}\n\
         linux-headers-{abi}-common {version} {suite}\n\
         linux-kbuild-6.1 {version} {suite}\nlinux-source-6.1 {version} {suite}\n"
    )
}

#[test]
fn the_peer_is_built_of_the_newest_kernel_that_is_whole() {
    let meta = "linux-image-amd64 6.1.192-2 bookworm linux-image-6.1.0-56-amd64\n";
    let old = whole("6.1.0-50", "6.1.176-1", "bookworm");
    // The image is signed after the next version's packages have taken the place of its own.
    let signed = "linux-image-6.1.0-56-amd64 6.1.192-2 bookworm\nlinux-headers-6.1.0-56-amd64 6.1.192-2 bookworm \
                  linux-headers-6.1.0-56-common, linux-kbuild-6.1\nlinux-headers-6.1.0-56-common 6.1.192-2 bookworm\n\
                  linux-source-6.1 6.1.192-2 bookworm\nlinux-kbuild-6.1 6.1.192-3 bookworm\n";
    let (chosen, said) = choose("", &format!("{meta}{signed}{old}"));
    assert_eq!(chosen.as_deref(), Ok("6.1.0-50-amd64 6.1.176-1"), "{said}");
    assert!(
        said.contains("passed over: 6.1.192-2 has no linux-kbuild-6.1\n"),
        "{said}"
    );
    let new = whole("6.1.0-56", "6.1.192-2", "bookworm");
    let (chosen, said) = choose("", &format!("{meta}{old}{new}"));
    assert_eq!(chosen.as_deref(), Ok("6.1.0-56-amd64 6.1.192-2"), "{said}");
    let (chosen, said) = choose("", &format!("{meta}{signed}"));
    assert_eq!(chosen, Err(()), "{said}");
    assert!(
        said.contains("no version of Linux 6.1 has image, headers, kbuild and source"),
        "{said}"
    );
}

#[test]
fn the_peer_of_backports_is_not_built_of_another_suites_kernel() {
    let meta = "linux-image-amd64 6.1.95-1~bpo bookworm-backports linux-image-6.1.95-amd64\n";
    let ours = whole("6.1.95", "6.1.95-1~bpo", "bookworm-backports");
    let security = whole("6.1.117", "6.1.117-1", "bookworm-security");
    let (chosen, said) = choose("-backports", &format!("{meta}{ours}{security}"));
    assert_eq!(chosen.as_deref(), Ok("6.1.95-amd64 6.1.95-1~bpo"), "{said}");
}
