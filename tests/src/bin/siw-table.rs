//! perftest over Linux's siw and over the RNIC, in the same virtual machine: `scripts/siw-table` starts it.

#![forbid(unsafe_code)]

use std::fs;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use clap::Parser;
use rnic_tests::bench::perftest::figures;
use rnic_tests::bench::stats::Summary;
use rnic_tests::bench::{GBIT, P50};
use rnic_tests::binary;
use rnic_tests::lab::{Family, Lab, Wiring};
use rnic_tests::peer::{Peer, PeerOptions};

/// perftest between two processes of one virtual machine with one processor, once over siw and once over
/// the RNIC: a table in Markdown.
#[derive(Debug, Parser)]
struct Cli {
    /// Runs of each kind; the table has their medians.
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..))]
    rounds: u32,
}

/// What runs, and messages of a run.
const LINES: [(&str, u32); 8] = [
    ("ib_write_bw -s 65536", 1000),
    ("ib_write_bw -s 1048576", 100),
    ("ib_read_bw -s 65536", 1000),
    ("ib_send_bw -s 65536", 1000),
    ("ib_write_bw -s 64", 20_000),
    ("ib_write_lat -s 64", 1000),
    ("ib_send_lat -s 64", 1000),
    ("ib_read_lat -s 64", 1000),
];

/// How long a run may take, on an emulated processor.
const LIMIT: Duration = Duration::from_secs(180);

/// In the shell, `$1` is the command line and `$2` the server's address. perftest's server listens twice, so
/// a client may come too early: both start over.
const RUN: &str = r#"
for attempt in 1 2 3 4 5; do
    timeout 60 $1 >/tmp/server.log 2>&1 &
    sleep 1
    timeout 60 $1 $2 >/tmp/client.log 2>&1 && wait && cat /tmp/client.log && exit
    wait
done
cat /tmp/client.log /tmp/server.log
exit 1
"#;

/// Where a program of the machine finds its RDMA.
#[derive(Clone, Copy, Debug)]
enum Over {
    Siw,
    Rnic,
}

fn main() -> ExitCode {
    let cli = Cli::parse();
    let mut lab = Lab::new("siw-table");
    let (_host, outlet) = lab.outlet(Wiring::Direct, 1500);
    let peer = Peer::boot(&lab, &outlet, &PeerOptions::default());
    install(&peer);
    let _daemon = peer.start("exec /host/rnicd --loopback --socket /run/rnicd.sock");
    let ready = "until [ -S /run/rnicd.sock ]; do sleep 0.1; done";
    let _ = peer.run(ready).success();

    let mut rows = LINES.map(|_| [const { Vec::new() }; 2]);
    let mut whole = true;
    let begin = Instant::now();
    for round in 1..=cli.rounds {
        for (row, (line, count)) in rows.iter_mut().zip(LINES) {
            for over in [Over::Siw, Over::Rnic] {
                let found = measure(&peer, over, &format!("{line} -n {count}"));
                let at = begin.elapsed().as_secs_f64();
                match found {
                    Ok(value) => {
                        eprintln!("{at:5.0} s  round {round}  {over:?} {line}: {value:.4}");
                        row[over as usize].push(value);
                    }
                    Err(why) => {
                        whole = false;
                        eprintln!("{at:5.0} s  round {round}  {over:?} {line}: {why}");
                    }
                }
            }
        }
    }
    table(&rows);
    if whole {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    }
}

/// Puts this build's daemon and library where the machine finds them.
fn install(peer: &Peer) {
    let share = peer.share();
    let copy = |program: &str, name: &str| {
        let to = share.join(name);
        let copied = fs::copy(binary::path(program), &to);
        copied.unwrap_or_else(|error| panic!("can't make {}: {error}", to.display()));
    };
    copy("rnicd", "rnicd");
    fs::create_dir(share.join("lib")).expect("the lab's directory is ours");
    copy("librnic_verbs.so", "lib/libibverbs.so.1");
    copy("librnic_verbs.so", "lib/librdmacm.so.1");
}

/// Gbit/s, or microseconds of a round trip.
fn measure(peer: &Peer, over: Over, line: &str) -> Result<f64, String> {
    let (environment, address) = match over {
        Over::Siw => ("", peer.address(Family::V4, 0).ip().to_string()),
        Over::Rnic => (
            "export RNIC_SOCKET=/run/rnicd.sock LD_LIBRARY_PATH=/host/lib\n",
            "127.0.0.1".into(),
        ),
    };
    let latency = line.contains("_lat");
    let report = if latency { "" } else { " --report_gbits" };
    let shell = format!("{environment}set -- '{line} -R -F{report}' {address}\n{RUN}");
    let ran = peer.start(&shell).finish(LIMIT * 3);
    let found = figures(&ran.stdout).filter(|_| ran.code == 0);
    let figure = if latency { P50 } else { GBIT };
    found
        .and_then(|all| all.get(figure).copied())
        .ok_or_else(|| ran.stdout + &ran.stderr)
}

/// Prints the table.
fn table(rows: &[[Vec<f64>; 2]]) {
    println!("| perftest, both ends in one machine | siw | RNIC | RNIC / siw |");
    println!("|---|---|---|---|");
    for ([siw, rnic], (line, _)) in rows.iter().zip(LINES) {
        let of = |values: &[f64]| Summary::of(values.iter().copied());
        let unit = if line.contains("_lat") {
            "us"
        } else {
            "Gbit/s"
        };
        match of(siw).zip(of(rnic)) {
            Some((siw, rnic)) => println!(
                "| `{line}`, {unit} | {:.3} | {:.3} | {:.2} |",
                siw.median,
                rnic.median,
                rnic.median / siw.median
            ),
            None => println!("| `{line}`, {unit} | not measured | | |"),
        }
    }
}
