//! Runs the comparison with the kernel's TCP and prints its table: `scripts/tcp-table` starts it.

#![forbid(unsafe_code)]

use std::process::ExitCode;
use std::time::Instant;

use clap::Parser;
use rnic_tests::kernel_comparison::cell::Cell;
use rnic_tests::kernel_comparison::table::{Table, mbit};
use rnic_tests::kernel_comparison::{Endpoints, TestBed};
use rnic_tests::lab::Family;

/// Our TCP against the kernel's over ten links: a table in Markdown, and exit status 1 when ours is
/// slower on more than two of them or below 0.8 on any.
#[derive(Debug, Parser)]
struct Cli {
    /// MiB of each transfer.
    #[arg(long, default_value_t = 1024)]
    mib: u64,
    /// Transfers of each kind; the table has their medians.
    #[arg(long, default_value_t = 3)]
    rounds: u32,
    /// Only these links, by name with commas between them.
    #[arg(long, value_name = "LINKS", value_delimiter = ',')]
    only: Vec<String>,
    /// Only this version of IP.
    #[arg(long, value_name = "4|6", value_parser = clap::value_parser!(u8).range(4..=6))]
    ip: Option<u8>,
    /// What streams and links come from.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Only the kernel against itself: to see what the links do.
    #[arg(long)]
    kernel: bool,
    /// Print what link and tcp-pipe have counted in each transfer.
    #[arg(long)]
    counters: bool,
}

fn main() -> ExitCode {
    let cli = Cli::parse();
    let mut cells = Vec::new();
    for name in &cli.only {
        let Some(cell) = Cell::named(name) else {
            let names: Vec<&str> = Cell::ALL.iter().map(|cell| cell.name).collect();
            eprintln!("tcp-table: no link {name}: there are {}", names.join(", "));
            return ExitCode::from(2);
        };
        cells.push(cell);
    }
    if cells.is_empty() {
        cells.extend(Cell::ALL);
    }
    let families: Vec<Family> = Family::ALL
        .into_iter()
        .filter(|family| cli.ip.is_none_or(|ip| (ip == 4) == (*family == Family::V4)))
        .collect();
    let all_endpoints = if cli.kernel {
        &Endpoints::ALL[..1]
    } else {
        &Endpoints::ALL[..]
    };
    let table = run_cells(&cli, &cells, &families, all_endpoints);
    println!("{}", table.markdown());
    let shortcomings = table.shortcomings();
    for line in &shortcomings {
        println!("- {line}");
    }
    if shortcomings.is_empty() {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    }
}

fn run_cells(cli: &Cli, cells: &[Cell], families: &[Family], all_endpoints: &[Endpoints]) -> Table {
    let bytes = cli.mib << 20;
    let mut test_bed = TestBed::new("table");
    let mut table = Table::new(bytes);
    let total = cli.rounds as usize * cells.len() * families.len() * all_endpoints.len();
    let (begin, mut done) = (Instant::now(), 0);
    for round in 1..=cli.rounds {
        for cell in cells {
            for &family in families {
                for &endpoints in all_endpoints {
                    let outcome = test_bed.run(cell, endpoints, family, bytes, cli.seed);
                    table.add(cell, endpoints, family, &outcome);
                    done += 1;
                    let took = outcome.received.or(outcome.sent).unwrap_or_default();
                    eprintln!(
                        "{:6.0} s  {done}/{total}  round {round}  {:10} {family:?} {endpoints:<14?} \
                         {:8.1} Mbit/s",
                        begin.elapsed().as_secs_f64(),
                        cell.name,
                        mbit(bytes, took),
                        endpoints = endpoints,
                    );
                    if cli.counters {
                        eprintln!("link: {}", outcome.link);
                        if let Some(ours) = &outcome.ours {
                            eprintln!("tcp-pipe: {ours}");
                        }
                    }
                }
            }
        }
    }
    table
}
