//! perftest as Debian builds it, over this build's verbs library and daemons: beside `rnic-perf` over
//! the same daemons it shows what the library costs.

use std::time::{Duration, Instant};

use rnic::admin::Kind;

use super::place::Place;
use super::rnic::{Daemons, MEBI, Polling, size_name};
use super::testbed::{End, ended};
use super::{Figures, GBIT, MESSAGES, P50, P99, P999, Testbed};
use crate::lab::{Command, Process};

/// How long a server may take until it listens.
const LISTEN_LIMIT: Duration = Duration::from_secs(20);
/// How often a pair is begun anew: the server listens a second time for what it measures, and a client
/// that comes too early is rejected.
const ATTEMPTS: u32 = 5;
/// What perftest is given to do is a number of messages. These rates make about the time that a run is
/// to measure: bytes a second, and round trips a second.
const BYTES: f64 = 5e8;
const ROUND_TRIPS: f64 = 3e4;

/// A run of one of perftest's programs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PerftestRun {
    /// `ib_write_bw`, by messages of so many bytes.
    WriteBandwidth(u32),
    /// `ib_write_lat`, by messages of 64 bytes.
    WriteLatency,
}

impl PerftestRun {
    /// All that are compared with `rnic-perf`.
    pub const ALL: [Self; 3] = [
        Self::WriteBandwidth(MEBI),
        Self::WriteBandwidth(1 << 16),
        Self::WriteLatency,
    ];

    #[must_use]
    pub fn name(self) -> String {
        match self {
            Self::WriteBandwidth(size) => format!("perftest-write-{}", size_name(size)),
            Self::WriteLatency => "perftest-write-64-ping".into(),
        }
    }

    /// Its command line, but for the server's address.
    fn line(self, duration: Duration) -> String {
        let count = |rate: f64| (rate * duration.as_secs_f64()).ceil().max(100.0) as u64;
        match self {
            Self::WriteBandwidth(size) => {
                let count = count(BYTES / f64::from(size));
                format!("ib_write_bw -R -F --report_gbits -s {size} -n {count}")
            }
            Self::WriteLatency => format!("ib_write_lat -R -F -s 64 -n {}", count(ROUND_TRIPS)),
        }
    }
}

/// What a client of perftest's says: of bandwidth with `--report_gbits`, or of latency, whose half round
/// trips are whole ones here.
#[must_use]
pub fn figures(stdout: &str) -> Option<Figures> {
    let row = stdout.lines().map(numbers).max_by_key(Vec::len)?;
    let found = match row[..] {
        // #bytes #iterations peak average rate
        [_, _, _, average, millions] => vec![(GBIT, average), (MESSAGES, millions * 1e6)],
        // #bytes #iterations min max typical average deviation 99 % 99.9 %
        [_, _, _, _, typical, _, _, p99, p999] => {
            let halves = [(P50, typical), (P99, p99), (P999, p999)];
            halves.map(|(name, half)| (name, half * 2.0)).into()
        }
        _ => return None,
    };
    Some(found.into_iter().collect())
}

/// The numbers of a line of nothing else.
fn numbers(line: &str) -> Vec<f64> {
    let words = line.split_whitespace().map(str::parse);
    words.collect::<Result<_, _>>().unwrap_or_default()
}

/// Runs it once, with a daemon on each host.
pub(super) fn run(testbed: &Testbed, place: Place, run: PerftestRun) -> Result<Figures, String> {
    let library = testbed.verbs_library();
    let daemons = Daemons::start(testbed, place, Polling::Adaptive, &[])?;
    let line = run.line(testbed.duration_at(place));
    let command = |end: End, line: &str| -> Command {
        let socket = format!("RNIC_SOCKET={}", daemons.socket(end).display());
        library.with(&testbed.host(place, end).namespace, &socket, line)
    };
    let client = format!("{line} {}", testbed.host(place, End::B).v4);
    for _ in 0..ATTEMPTS {
        let mut server = command(End::B, &line).spawn();
        wait_for_listener(&daemons, &mut server)?;
        let client = command(End::A, &client).spawn();
        let client = client.end_within(testbed.limit(), super::interrupt::came)?;
        if client.stderr.contains("RDMA_CM_EVENT_REJECTED") {
            server.kill();
            continue;
        }
        if !client.status.success() {
            return Err(client.to_string());
        }
        ended(server, testbed.limit())?;
        daemons.stop(testbed.limit())?;
        return figures(&client.stdout).ok_or_else(|| format!("no figures in {client}"));
    }
    Err(format!("{line}: the client was rejected {ATTEMPTS} times"))
}

fn wait_for_listener(daemons: &Daemons, server: &mut Process) -> Result<(), String> {
    let context = rnic::Daemon::at(daemons.socket(End::B))
        .and_then(|it| it.open(None))
        .map_err(|error| error.to_string())?;
    let begin = Instant::now();
    while begin.elapsed() < LISTEN_LIMIT && server.running() {
        let listeners = context.inspect(Kind::Listeners);
        if !listeners.map_err(|error| error.to_string())?.is_empty() {
            return Ok(());
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    Err("perftest's server does not listen".into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_numbers_of_a_table_are_its_longest_row_of_numbers() {
        let said = " Connection type : RC\n #bytes #iterations BW peak[Gb/sec]\n 65536 50 5.1 4.25 0.0081\n";
        let found = figures(said).unwrap();
        assert_eq!((found[GBIT], found[MESSAGES]), (4.25, 8100.0));
        let said = "  64  100  23.1  2552.0  24.5  31.7  4.0  277.3  2051.8 \n";
        assert_eq!(figures(said).unwrap()[P50], 49.0);
        assert_eq!(figures("Couldn't connect to 198.18.1.2:18515\n"), None);
    }

    #[test]
    fn a_line_names_what_it_measures() {
        let line = PerftestRun::WriteBandwidth(1 << 16).line(Duration::from_secs(1));
        assert_eq!(line, "ib_write_bw -R -F --report_gbits -s 65536 -n 7630");
        assert_eq!(
            PerftestRun::WriteBandwidth(MEBI).name(),
            "perftest-write-1M"
        );
    }
}
