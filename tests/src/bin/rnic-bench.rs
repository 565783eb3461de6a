//! Runs the benchmark and writes its report: `scripts/bench` starts it.

#![forbid(unsafe_code)]

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use clap::Parser;
use rnic_tests::bench::machine::Machine;
use rnic_tests::bench::noise_guard::NoiseGuard;
use rnic_tests::bench::report::Report;
use rnic_tests::bench::turns::Turns;
use rnic_tests::bench::{
    Case, Figures, GBIT, P50, Results, Testbed, goals, interrupt, matrix, plots, turns,
};

/// Raw AF_XDP, the RNIC and the kernel's TCP over the same cables, interleaved: tables, JSON and plots.
///
/// The exit status is 1 when a case failed, 130 when a signal cut the run short; the report is
/// written in either case.
#[derive(Debug, Parser)]
struct Cli {
    /// Fewer cases, and less time for each.
    #[arg(long)]
    quick: bool,
    /// One case of each kind only: whether the benchmark itself works.
    #[arg(long, conflicts_with = "quick")]
    smoke: bool,
    /// How often each case runs.
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..))]
    rounds: u32,
    /// Seconds that each run measures [default: 1.5, or 0.3 with --quick or --smoke].
    #[arg(long, value_parser = seconds)]
    seconds: Option<f64>,
    /// Only cases that a goal is about.
    #[arg(long)]
    goals: bool,
    /// Let each run wait until the cores are as fast as they can be, and repeat it when they were not
    /// behind it: where others use the machine too.
    #[arg(long)]
    calm: bool,
    /// Each case by itself, also those that would be stopped for each other: where they take the
    /// cores from this program too.
    #[arg(long)]
    no_turns: bool,
    /// Where the report goes.
    #[arg(long, value_name = "DIR")]
    out: PathBuf,
    /// Only cases that have one of these in their names; a whole name is that one's alone.
    #[arg(long, value_name = "NAME", num_args = 1..)]
    only: Vec<String>,
    /// Print the cases' names and end.
    #[arg(long)]
    list: bool,
    /// The executable of rnic-engine's benchmark `memory`.
    #[arg(long, value_name = "FILE")]
    memory: Option<PathBuf>,
}

fn seconds(text: &str) -> Result<f64, String> {
    let seconds: f64 = text.parse().map_err(|_| "give a number of seconds")?;
    let possible = (0.1..=3600.0).contains(&seconds);
    possible
        .then_some(seconds)
        .ok_or_else(|| "give 0.1 to 3600 seconds".to_owned())
}

fn main() -> ExitCode {
    let cli = Cli::parse();
    let cases = cases(&cli);
    if cli.list {
        for case in cases {
            println!("{}", case.name);
        }
        return ExitCode::SUCCESS;
    }
    if cases.is_empty() {
        eprintln!("rnic-bench: --only leaves nobody; --list names all");
        return ExitCode::from(2);
    }
    match bench(&cli, cases) {
        Ok(results) if interrupt::came() => {
            drop(results);
            ExitCode::from(130)
        }
        Ok(results) if results.failed() => ExitCode::FAILURE,
        Ok(_) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("rnic-bench: {error}");
            ExitCode::from(2)
        }
    }
}

fn cases(cli: &Cli) -> Vec<Case> {
    let mut all = match (cli.smoke, cli.quick) {
        (true, _) => matrix::smoke(),
        (false, true) => matrix::quick(),
        (false, false) => matrix::full(),
    };
    let goals = goals::all();
    all.retain(|one| !cli.goals || goals.iter().any(|goal| goal.concerns(&one.name)));
    let (names, parts): (Vec<_>, Vec<_>) = cli
        .only
        .iter()
        .map(String::as_str)
        .partition(|part| all.iter().any(|one| one.name == *part));
    all.retain(|Case { name, .. }| {
        cli.only.is_empty()
            || names.contains(&name.as_str())
            || parts.iter().any(|part| name.contains(part))
    });
    all
}

/// The testbed, and how long is measured on it. Makes the directory for what will be written.
fn prepare(cli: &Cli) -> Result<(Testbed, Duration), String> {
    interrupt::watch().map_err(|error| format!("can't watch for signals: {error}"))?;
    let short = cli.quick || cli.smoke;
    let seconds = cli.seconds.unwrap_or(if short { 0.3 } else { 1.5 });
    let duration = Duration::from_secs_f64(seconds);
    std::fs::create_dir_all(&cli.out)
        .map_err(|error| format!("can't make {}: {error}", cli.out.display()))?;
    Ok((Testbed::new(duration, cli.memory.clone()), duration))
}

fn bench(cli: &Cli, cases: Vec<Case>) -> Result<Results, String> {
    let (mut testbed, duration) = prepare(cli)?;
    let machine = Machine::here();
    let supported = cases.into_iter().map(|one| {
        let unsupported = one.unsupported(&testbed);
        (one, unsupported)
    });
    let mut results = Results::new(supported);
    let mut calm = cli.calm.then(|| NoiseGuard::of(testbed.cores()));
    let groups = groups(&results, !cli.no_turns);
    run_rounds(
        cli.rounds,
        &groups,
        &mut testbed,
        calm.as_mut(),
        &mut results,
    );
    drop(testbed);
    let report = Report {
        machine: &machine,
        duration,
        calm: calm.as_ref(),
        results: &results,
    };
    let markdown = report.markdown();
    write(&cli.out, "report.md", &markdown)?;
    write(&cli.out, "results.json", &format!("{:#}\n", report.json()))?;
    for (name, plot) in plots::all(&results) {
        write(&cli.out, name, &plot)?;
    }
    println!("{markdown}");
    eprintln!("written to {}", cli.out.display());
    Ok(results)
}

/// All cases, round after round, until all rounds are over or a signal comes.
fn run_rounds(
    rounds: u32,
    groups: &[Vec<usize>],
    testbed: &mut Testbed,
    mut calm: Option<&mut NoiseGuard>,
    results: &mut Results,
) {
    let begin = Instant::now();
    let total = groups.iter().map(Vec::len).sum::<usize>() * rounds as usize;
    let mut done = 0;
    for round in 1..=rounds {
        for group in groups {
            let cases = group.iter().map(|row| &results.rows[*row].case);
            let cases: Vec<&Case> = cases.collect();
            let mut run = || match &cases[..] {
                [alone] => vec![alone.run(testbed)],
                several => turns::run(several, testbed),
            };
            let outcomes = match calm.as_deref_mut() {
                Some(calm) => calm.run(run),
                None => run(),
            };
            if interrupt::came() {
                return;
            }
            for (row, outcome) in group.iter().zip(outcomes) {
                let row = &mut results.rows[*row];
                done += 1;
                let said = outcome
                    .as_ref()
                    .map_or_else(|error| first_line(error), show);
                eprintln!(
                    "{:6.1} s  round {round}/{rounds}  {done}/{total}  {:<40} {said}",
                    begin.elapsed().as_secs_f64(),
                    row.case.name,
                );
                row.add(outcome);
            }
        }
    }
}

/// The rows that can run: each alone, or with all that it takes turns with, if there are turns.
fn groups(results: &Results, turns: bool) -> Vec<Vec<usize>> {
    let mut groups: Vec<(Option<Turns>, Vec<usize>)> = Vec::new();
    for (at, row) in results.rows.iter().enumerate() {
        if row.unsupported.is_some() {
            continue;
        }
        let with = row.case.turns().filter(|_| turns);
        let group = groups
            .iter_mut()
            .find(|(other, _)| with.is_some() && *other == with);
        match group {
            Some((_, group)) => group.push(at),
            None => groups.push((with, vec![at])),
        }
    }
    groups.into_iter().map(|(_, group)| group).collect()
}

fn show(figures: &Figures) -> String {
    match (figures.get(GBIT), figures.get(P50)) {
        (Some(goodput), _) => format!("{goodput:.2} Gbit/s"),
        (None, Some(p50)) => format!("p50 {p50:.1} us"),
        (None, None) => format!("{figures:?}"),
    }
}

fn first_line(error: &str) -> String {
    format!("FAILED: {}", error.lines().next().unwrap_or_default())
}

fn write(directory: &Path, name: &str, text: &str) -> Result<(), String> {
    let path = directory.join(name);
    std::fs::write(&path, text).map_err(|error| format!("can't write {}: {error}", path.display()))
}
