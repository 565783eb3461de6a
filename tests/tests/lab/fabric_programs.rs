//! Debian's libfabric over the verbs, and Open MPI over libfabric, unmodified, between two daemons.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use rnic_tests::programs::Programs;
use rnic_tests::wait;

const LIMIT: Duration = Duration::from_secs(30);

/// How long two ranks may take.
const RANKS_LIMIT: Duration = Duration::from_secs(60);

#[test]
fn libfabric_moves_messages_by_verbs_and_by_rxm_over_them() {
    let programs = Programs::new("fabric-pingpong");
    let listed = programs.on_a("fi_info -p verbs").run().success();
    assert!(listed.stdout.contains("FI_PROTO_IWARP"), "{listed}");
    for (provider, kind) in [("verbs", "msg"), ("verbs;ofi_rxm", "rdm")] {
        let pingpong = format!("fi_pingpong -p {provider} -e {kind} -I 10 -c");
        let server = programs.on_b(&pingpong).spawn();
        wait::until(
            "the server waits for its client's TCP connection",
            LIMIT,
            || {
                let listening = programs.pair.b.namespace.command("ss").arg("-Hltn").run();
                listening.stdout.contains(":47592").then_some(())
            },
        );
        let client = programs.on_a(&format!("{pingpong} {}", programs.address()));
        let client = client.run().success();
        assert!(client.stdout.contains("1m"), "{client}");
        let _ = server.finish(LIMIT).success();
    }
}

/// libfabric asks for the address of `localhost`, and takes a device that has it. A device of the kernel has
/// none, so that it lists the addresses of the interfaces, at which peers find them.
#[test]
fn libfabric_tells_addresses_that_peers_reach() {
    let programs = Programs::new("fabric-addresses");
    let told = programs.on_a("fi_info -v -p verbs").run().success().stdout;
    let address = format!("src_addr: fi_sockaddr_in://{}:0", programs.pair.a.v4);
    assert!(told.contains(&address), "no {address} in {told}");
    assert!(!told.contains("://127.0.0.1"), "{told}");
}

/// What has Open MPI use libfabric, and libfabric the RNIC.
const OVER_VERBS: &str = "--allow-run-as-root --mca pml cm --mca mtl ofi \
                          --mca mtl_ofi_provider_include verbs;ofi_rxm";

fn ranks(programs: &Programs) -> PathBuf {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("verbs/ranks.c");
    let program = programs.pair.lab.directory().join("ranks");
    let built = Command::new("mpicc")
        .args(["-O1", "-Wall", "-Werror"])
        .arg(source)
        .arg("-o")
        .arg(&program)
        .output();
    let built = built.unwrap_or_else(|error| panic!("can't run mpicc (scripts/setup): {error}"));
    assert!(
        built.status.success(),
        "{}",
        String::from_utf8_lossy(&built.stderr)
    );
    program
}

/// Runs two ranks, started on `a`, and gives how many bytes were placed at each host.
#[track_caller]
fn run_ranks(name: &str, options: impl FnOnce(&Programs) -> String) -> [u64; 2] {
    let programs = Programs::new(name);
    let (program, options) = (ranks(&programs), options(&programs));
    let line = format!("mpirun -np 2 {OVER_VERBS} {options} {}", program.display());
    let run = programs.on_a(&line).limit(RANKS_LIMIT).run().success();
    assert!(run.stdout.contains("all bytes are right"), "{run}");
    [&programs.pair.daemon_a, &programs.pair.daemon_b].map(|daemon| daemon.counter("bytes_placed"))
}

/// The largest messages alone, of one rank.
const AT_LEAST: u64 = 10 * (4 << 20);

#[test]
fn ranks_of_open_mpi_exchange_messages_within_a_host() {
    let [placed, elsewhere] = run_ranks("fabric-ranks", |_| "--oversubscribe".to_owned());
    assert!(
        placed > 2 * AT_LEAST && elsewhere == 0,
        "{placed} {elsewhere}"
    );
}

#[test]
fn ranks_of_open_mpi_exchange_messages_between_hosts() {
    let placed = run_ranks("fabric-hosts", |programs| {
        format!(
            "--host {}:1,{}:1 --mca plm_rsh_agent {}",
            programs.pair.a.v4,
            programs.pair.b.v4,
            programs.remote_shell().display()
        )
    });
    assert!(placed.iter().all(|placed| *placed > AT_LEAST), "{placed:?}");
}
