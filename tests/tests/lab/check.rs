//! `rnicd --check` tells all that keeps the daemon from starting on this host, and nothing when it would start.

use std::path::{Path, PathBuf};

use rnic_tests::binary;
use rnic_tests::daemon::{Daemon, DaemonOptions};
use rnic_tests::lab::{Command, Host, INTERFACE, Lab, LinkOptions};

/// A user that no host has.
const USER: u32 = 64_716;
/// What opening an interface needs.
const CAPABILITIES: &str = "+net_admin,+net_raw,+bpf,+perfmon";

struct Bench {
    host: Host,
    program: PathBuf,
    lab: Lab,
}

impl Bench {
    fn new(name: &str) -> Self {
        let mut lab = Lab::new(name);
        let (host, _) = lab.pair(&LinkOptions::default());
        std::os::unix::fs::chown(lab.directory(), Some(USER), Some(USER)).expect("root may");
        let program = binary::copy("rnicd", lab.directory());
        Self { host, program, lab }
    }

    /// A check by an ordinary user with these capabilities (as setpriv(1) has them), of an interface whose
    /// packet buffers are 8 MiB, where so many bytes may be locked.
    fn check(&self, capabilities: &str, memlock: u64, more: &[&str]) -> Command {
        let command = self.host.namespace.command("prlimit");
        let command = command.args([&format!("--memlock={memlock}"), "setpriv"]);
        let command = command.args([
            &format!("--reuid={USER}"),
            &format!("--regid={USER}"),
            "--clear-groups",
            &format!("--inh-caps=-all{capabilities}"),
            &format!("--ambient-caps=-all{capabilities}"),
            &format!("--bounding-set=-all{capabilities}"),
        ]);
        let command = command.arg(&self.program).arg("--check");
        command.args(["--interface", INTERFACE]).args(more)
    }
}

#[test]
fn every_fault_of_the_host_is_a_line_and_the_settings_are_printed_all_the_same() {
    let bench = Bench::new("check-faults");
    let more = [
        "--socket",
        "/nonexistent/rnicd.sock",
        "--capture",
        "/nonexistent/a.pcapng",
    ];
    let ended = bench.check("", 65_536, &more).run();
    assert!(
        ended.stdout.contains(&format!("interface {INTERFACE}:")),
        "{ended}"
    );
    let told = ended.failure();
    let lines: Vec<_> = told.lines().collect();
    let expected = [
        "can't listen on /nonexistent/rnicd.sock: its directory can't be looked at",
        "capture file /nonexistent/a.pcapng can't be written",
        "CAP_NET_ADMIN, CAP_NET_RAW, CAP_PERFMON, CAP_BPF: run as root, or give",
        "8388608 bytes of packet buffers asked, but this process may lock 65536 bytes",
    ];
    assert_eq!(lines.len(), expected.len(), "{told}");
    for (line, words) in lines.iter().zip(expected) {
        assert!(
            line.starts_with("rnicd: ") && line.contains(words),
            "{told}"
        );
    }
}

#[test]
fn who_may_start_the_daemon_is_told_of_no_fault() {
    let bench = Bench::new("check-sound");
    let socket = bench.lab.directory().join("rnicd.sock");
    let socket = ["--socket", socket.to_str().expect("text")];
    let enough = format!(",{CAPABILITIES}");
    let ended = bench.check(&enough, 8 << 20, &socket).run().success();
    assert_eq!(ended.stderr, "");
    let told = bench.check(&enough, 8_388_607, &socket).run().failure();
    assert!(told.contains("raise `ulimit -l`"), "{told}");
    let locks = format!("{enough},+ipc_lock");
    let _ = bench.check(&locks, 8_388_607, &socket).run().success();
}

#[test]
fn a_daemon_that_runs_is_told_and_goes_on() {
    let mut lab = Lab::new("check-taken");
    let (host, _) = lab.pair(&LinkOptions::default());
    let mut daemon = Daemon::start(&lab, &host, &DaemonOptions::default());
    let command = host.namespace.command(binary::path("rnicd"));
    let command = command.args(["--check", "--interface", INTERFACE, "--socket"]);
    let told = command.arg(daemon.socket()).run().failure();
    assert!(told.contains("another rnicd answers there"), "{told}");
    assert_eq!(told.lines().count(), 1, "{told}");
    daemon.assert_alive();
}

/// Uid 0 has all capabilities there, and those that the kernel asks for count in the host's own namespace only.
#[test]
fn what_a_start_in_a_user_namespace_is_refused_is_told_before() {
    let bench = Bench::new("check-userns");
    let directory = tempfile::tempdir().expect("a directory of root's");
    let socket = directory.path().join("rnicd.sock");
    let rnicd = |more: &[&str]| {
        let command = bench.host.namespace.command("unshare").arg("-Ur");
        let command = command.arg(&bench.program).args(["--interface", INTERFACE]);
        command.args(more).arg("--socket").arg(&socket)
    };
    let checked = rnicd(&["--check"]).run().failure();
    let started = rnicd(&["--no-wait"]).run().failure();
    assert_eq!(checked.lines().count(), 1, "{checked}");
    for told in [&checked, &started] {
        assert!(told.contains("in a user namespace"), "{told}");
        assert!(told.contains("--loopback needs no privilege"), "{told}");
    }
    // The interface's network is not this user namespace's either.
    let missing = "CAP_NET_ADMIN, CAP_NET_RAW, CAP_PERFMON, CAP_BPF: ";
    assert!(checked.contains(missing), "{checked}");

    // With a network of its own.
    let own = format!(
        "ip link add own0 type veth peer name own1 && ip link set dev own0 up && \
         ip address add 198.18.7.1/24 dev own0 && exec {} --interface own0 --socket {} \"$@\"",
        bench.program.display(),
        socket.display()
    );
    let rnicd = |more: &str| {
        let command = bench.host.namespace.command("unshare");
        command.args(["-Urn", "sh", "-c", &own, "sh", more])
    };
    let checked = rnicd("--check").run().failure();
    let started = rnicd("--no-wait").run().failure();
    assert!(
        checked.contains("is without, CAP_PERFMON, CAP_BPF: "),
        "{checked}"
    );
    assert!(started.contains("in a user namespace"), "{started}");
}

/// What needs no interface needs no namespace.
#[test]
fn loopback_alone_is_no_fault_in_a_user_namespace() {
    let bench = Bench::new("check-userns-lo");
    let directory = tempfile::tempdir().expect("a directory of root's");
    let socket = directory.path().join("rnicd.sock");
    let command = bench.host.namespace.command("unshare").arg("-Ur");
    let command = command
        .arg(&bench.program)
        .args(["--check", "--loopback", "--socket"]);
    let _ = command.arg(&socket).run().success();
}

#[test]
fn what_of_the_hosts_policy_is_in_use_is_a_line_and_no_fault() {
    let bench = Bench::new("check-policy");
    let socket = bench.lab.directory().join("rnicd.sock");
    let check = || {
        let command = bench.host.namespace.command(&bench.program);
        let command = command.args(["--check", "--interface", INTERFACE, "--socket"]);
        command.arg(&socket).run().success().stdout
    };
    assert!(!check().contains("the host's policy:"));
    let words = ["xfrm", "policy", "add", "dir", "out", "action", "block"];
    bench.host.namespace.ip(&words);
    let qdisc = ["qdisc", "add", "dev", INTERFACE, "clsact"];
    let _ = bench
        .host
        .namespace
        .command("tc")
        .args(qdisc)
        .run()
        .success();
    let told = check();
    let (_, policy) = told
        .split_once("the host's policy:\n")
        .expect("it is named");
    let expected = [
        "the host's IPsec forbids clear traffic by src 0.0.0.0/0 dst 0.0.0.0/0 dir out block",
        "it has a queueing discipline clsact of tc",
    ];
    for (line, words) in policy.lines().zip(expected) {
        assert!(line.contains(words) && line.contains(INTERFACE), "{told}");
    }
    // A daemon that starts says the same.
    let daemon = Daemon::start(&bench.lab, &bench.host, &DaemonOptions::default());
    let log = daemon.log();
    assert!(expected.iter().all(|words| log.contains(words)), "{log}");
}

/// Attaches a BPF program to a control group, which sees what comes to its sockets and lets all through.
const ATTACH: &str = r#"
import ctypes, os, struct, sys

kernel = ctypes.CDLL(None, use_errno=True)

def bpf(command, attribute):
    attribute = ctypes.create_string_buffer(attribute.ljust(128, b"\0"), 128)
    done = kernel.syscall(321, command, attribute, 128)
    if done < 0:
        sys.exit(os.strerror(ctypes.get_errno()))
    return done

# r0 = 1; exit
program = ctypes.create_string_buffer(struct.pack("<QQ", 0x1000000B7, 0x95), 16)
text = ctypes.create_string_buffer(b"GPL")
# BPF_PROG_TYPE_CGROUP_SKB, to BPF_CGROUP_INET_INGRESS
loaded = bpf(5, struct.pack("<IIQQ", 8, 2, ctypes.addressof(program), ctypes.addressof(text)))
bpf(8, struct.pack("<IIII", os.open(sys.argv[1], os.O_RDONLY), loaded, 0, 0))
"#;

/// Asks for the table `filter` of iptables-legacy, which makes the kernel load it: IPT_SO_GET_INFO.
const LOAD_LEGACY: &str = r#"
import ctypes, socket, sys

kernel = ctypes.CDLL(None, use_errno=True)
raw = socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_RAW)
info, size = ctypes.create_string_buffer(b"filter", 84), ctypes.c_int(84)
if kernel.getsockopt(raw.fileno(), socket.IPPROTO_IP, 64, info, ctypes.byref(size)) < 0:
    sys.exit(f"no iptables-legacy: errno {ctypes.get_errno()}")
"#;

/// A control group of version 2, which is removed in the end.
struct Group(PathBuf);

impl Group {
    fn new(name: &str) -> Self {
        let mounts = std::fs::read_to_string("/proc/self/mounts").expect("mounts");
        let words = |line: &str| line.split(' ').map(str::to_owned).collect::<Vec<_>>();
        let mut mounts = mounts.lines().map(words);
        let mount = mounts.find(|words| words.get(2).is_some_and(|kind| kind == "cgroup2"));
        let mount = mount.expect("a host with control groups of version 2");
        let group = Path::new(&mount[1]).join(format!("{name}-{}", std::process::id()));
        std::fs::create_dir(&group).expect("root may make a group");
        Self(group)
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        // Its processes have ended.
        let _ = std::fs::remove_dir(&self.0);
    }
}

/// What `rnicd --check` says of the host's policy, in this control group or in that of the test.
fn told_of_policy(bench: &Bench, group: Option<&Group>) -> String {
    let socket = bench.lab.directory().join("rnicd.sock");
    let join = group.map_or_else(String::new, |group| {
        format!("echo $$ >{}/cgroup.procs && ", group.0.display())
    });
    // Not `ip netns exec`, which hides the control groups.
    let line = format!(
        "{join}exec nsenter --net=/run/netns/{} {} --check --interface {INTERFACE} --socket {}",
        bench.host.namespace.name(),
        bench.program.display(),
        socket.display()
    );
    let told = std::process::Command::new("sh")
        .args(["-c", &line])
        .output();
    let told = told.expect("a shell");
    assert!(told.status.success(), "{told:?}");
    let told = String::from_utf8(told.stdout).expect("text");
    let policy = told.split_once("the host's policy:\n");
    policy.map_or_else(String::new, |(_, policy)| policy.to_owned())
}

#[test]
fn the_reverse_path_filter_is_named_where_it_is_on() {
    let bench = Bench::new("check-rp-filter");
    let told = || told_of_policy(&bench, None);
    assert_eq!(told(), "");
    for name in [INTERFACE, "all"] {
        let key = format!("net.ipv4.conf.{name}.rp_filter");
        for value in ["1", "2"] {
            bench.host.namespace.sysctl(&key, value);
            let told = told();
            let words = format!("interface {INTERFACE}: rp_filter is {value}");
            assert!(told.contains(&words) && told.lines().count() == 1, "{told}");
        }
        bench.host.namespace.sysctl(&key, "0");
    }
}

#[test]
fn programs_of_the_daemons_control_group_and_of_those_above_are_named() {
    let bench = Bench::new("check-cgroup-bpf");
    let group = Group::new("rnic-check");
    assert_eq!(told_of_policy(&bench, Some(&group)), "");
    let mut python = std::process::Command::new("python3");
    let attached = python.args(["-c", ATTACH]).arg(&group.0).output();
    let attached = attached.expect("python3 (scripts/setup)");
    assert!(attached.status.success(), "{attached:?}");
    let below = Group(group.0.join("below"));
    std::fs::create_dir(&below.0).expect("root may make a group");
    for within in [&group, &below] {
        let told = told_of_policy(&bench, Some(within));
        let words = format!(
            "interface {INTERFACE}: the control group {} has BPF programs (ingress)",
            within.0.display()
        );
        assert!(told.contains(&words) && told.lines().count() == 1, "{told}");
    }
    assert_eq!(told_of_policy(&bench, None), "");
}

#[test]
fn tables_of_iptables_legacy_are_named() {
    let bench = Bench::new("check-legacy");
    assert_eq!(told_of_policy(&bench, None), "");
    let python = bench.host.namespace.command("python3");
    let _ = python.args(["-c", LOAD_LEGACY]).run().success();
    let told = told_of_policy(&bench, None);
    let words = format!("interface {INTERFACE}: the host has rules of iptables");
    assert!(told.contains(&words) && told.lines().count() == 1, "{told}");
}
