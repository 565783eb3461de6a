//! Breaks the rules of the conformance tables one by one and looks whether the tests that the rows
//! cite notice: `scripts/conformance-mutants` starts it.
//!
//! It works on a copy of the sources below `target/mutants`, which stays for the next time, as what is built of it
//! does. Nothing else is changed.

#![forbid(unsafe_code)]

mod cited;
mod drawn;
mod tree;
// Read in one way by what checks them and by what makes them.
#[path = "../../../../rnic/proto/tests/conformance/mutants.rs"]
mod mutants;
#[allow(dead_code, reason = "the tables' own test reads all of a row")]
#[path = "../../../../rnic/proto/tests/conformance/rows.rs"]
mod rows;

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use clap::Parser;

use cited::{Cited, Outcome};
use mutants::Mutant;
use rows::{Row, State};
use tree::Tree;

/// Makes mutants of the sources, each breaking the rule of rows in docs/conformance, and runs the tests that these
/// rows cite. Exit status 1 when the tests of a row all pass, or when a mutant does not apply or does not compile.
#[derive(Debug, Parser)]
struct Cli {
    /// Those of these rows, by id with commas between them.
    #[arg(long, value_name = "IDS", value_delimiter = ',')]
    rows: Vec<String>,
    /// Those of so many rows, drawn at random.
    #[arg(long, value_name = "N")]
    random: Option<usize>,
    /// What random rows are drawn by; a new one each time if there is none.
    #[arg(long)]
    seed: Option<u64>,
    /// All.
    #[arg(long)]
    all: bool,
    /// Begins no further mutant after so many seconds.
    #[arg(long, value_name = "SECONDS")]
    limit: Option<u64>,
    /// Only prints so many rows of level MUST that are met, drawn by the seed, and whether they have a
    /// mutant: for adding some.
    #[arg(long, value_name = "N")]
    draw: Option<usize>,
    /// Mutants of lines of an area of tests/conformance-mutants/drawn, drawn at random; without --count and
    /// --random those of its list that lived.
    #[arg(long, value_name = "AREA")]
    drawn: Option<String>,
    /// With --drawn: so many from all lines; with --random N so many of those that were noticed before.
    #[arg(long, value_name = "N")]
    count: Option<usize>,
    /// With --drawn: only prints them, also those that do not compile.
    #[arg(long)]
    print: bool,
    /// With --drawn: runs the first so many stages of the area's tests.
    #[arg(long, value_name = "N", default_value_t = usize::MAX)]
    stages: usize,
}

fn main() -> ExitCode {
    match run(&Cli::parse()) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("conformance-mutants: {error}");
            ExitCode::from(2)
        }
    }
}

fn run(cli: &Cli) -> Result<bool, String> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let root = root
        .canonicalize()
        .map_err(|e| format!("{}: {e}", root.display()))?;
    let time = SystemTime::now().duration_since(UNIX_EPOCH);
    let seed = cli
        .seed
        .unwrap_or(time.map_or(1, |time| time.as_secs() % 1_000_000));
    let limit = cli.limit.map(Duration::from_secs);
    if let Some(area) = &cli.drawn {
        let from = match (cli.count, cli.random) {
            (Some(count), _) => drawn::From::Lines(count),
            (None, Some(count)) => drawn::From::Noticed(count),
            (None, None) => drawn::From::Lived,
        };
        let wanted = drawn::Wanted {
            area,
            from,
            seed,
            only_print: cli.print,
            limit,
            stages: cli.stages,
        };
        return drawn::judge(&root, &wanted);
    }
    let tables = tables(&root)?;
    let all = mutants::load(&root)?;
    if let Some(count) = cli.draw {
        print_draw(&tables, &all, count, seed);
        return Ok(true);
    }
    let wanted = wanted(cli, &all.mutant, seed)?;
    let chosen = all.mutant.into_iter().filter_map(|mut mutant| {
        mutant.rows.retain(|row| wanted.contains(row));
        (!mutant.rows.is_empty()).then_some(mutant)
    });
    Bench::new(&root, &tables)?.judge(chosen.collect(), limit)
}

/// The rows of all tables, by their ids.
fn tables(root: &Path) -> Result<BTreeMap<String, Row>, String> {
    let folder = root.join("docs/conformance");
    let entries = std::fs::read_dir(&folder).map_err(|e| format!("{}: {e}", folder.display()))?;
    let mut tables = BTreeMap::new();
    for path in entries.flatten().map(|entry| entry.path()) {
        let name = path.display().to_string();
        let text = std::fs::read_to_string(&path).map_err(|e| format!("{name}: {e}"))?;
        let rows = rows::parse(&name, &text).map_err(|complaints| complaints.join("\n"))?;
        tables.extend(rows.into_iter().map(|row| (row.id.clone(), row)));
    }
    Ok(tables)
}

fn print_draw(tables: &BTreeMap<String, Row>, all: &mutants::Mutants, count: usize, seed: u64) {
    let is_met = |row: &&Row| row.level == "MUST" && row.state == State::Met;
    let mut drawn: Vec<&Row> = tables.values().filter(is_met).collect();
    drawn.sort_by_key(|row| mutants::lot(seed, &row.id));
    for row in drawn.into_iter().take(count) {
        let exempt = all.exempt.iter().find(|exempt| exempt.row == row.id);
        let mutants = all.mutant.iter().filter(|m| m.rows.contains(&row.id));
        let has = match exempt {
            Some(exempt) => format!("none: {}", exempt.why),
            None => format!("{} mutants", mutants.count()),
        };
        println!("{:20} {has}", row.id);
    }
}

/// The rows that were asked for.
fn wanted(cli: &Cli, all: &[Mutant], seed: u64) -> Result<BTreeSet<String>, String> {
    let mut known: Vec<String> = all.iter().flat_map(|m| m.rows.clone()).collect();
    known.sort();
    known.dedup();
    if cli.all {
        return Ok(known.into_iter().collect());
    }
    if let Some(count) = cli.random {
        println!("rows drawn with --random {count} --seed {seed}");
        known.sort_by_key(|id| mutants::lot(seed, id));
        known.truncate(count);
        return Ok(known.into_iter().collect());
    }
    if cli.rows.is_empty() {
        return Err("no rows: use --rows IDS, --random N or --all".to_string());
    }
    if let Some(id) = cli.rows.iter().find(|id| !known.contains(id)) {
        return Err(format!(
            "{id} has no mutant in tests/conformance-mutants, which knows {} rows",
            known.len()
        ));
    }
    Ok(cli.rows.iter().cloned().collect())
}

/// Where mutants are made and judged.
struct Bench<'a> {
    tree: Tree,
    /// Where the work tree is built.
    target: PathBuf,
    folder: PathBuf,
    tables: &'a BTreeMap<String, Row>,
    failures: Vec<String>,
    killed: usize,
}

impl<'a> Bench<'a> {
    fn new(root: &Path, tables: &'a BTreeMap<String, Row>) -> Result<Self, String> {
        let folder = root.join("target/mutants");
        Ok(Self {
            tree: Tree::copy(root, &folder.join("tree"), "mutants")?,
            target: tree::target_of(root),
            folder,
            tables,
            failures: Vec::new(),
            killed: 0,
        })
    }

    /// Whether each mutant is noticed by the tests of each of its rows.
    fn judge(mut self, mutants: Vec<Mutant>, limit: Option<Duration>) -> Result<bool, String> {
        let begin = Instant::now();
        let rows: BTreeSet<&String> = mutants.iter().flat_map(|m| &m.rows).collect();
        let cited = self.cited(rows.iter().copied())?;
        println!(
            "{} rows, {} mutants, {} tests: first without any mutant",
            rows.len(),
            mutants.len(),
            cited.len()
        );
        for group in cited::groups(&cited) {
            match cited::run(&self.tree, &self.target, &self.folder, &group)? {
                Outcome::Ran { failed } if failed.is_empty() => {}
                other => return Err(format!("without any mutant: {other:?}")),
            }
        }
        println!("{:6.0} s  all pass", begin.elapsed().as_secs_f64());
        let mut left_out = 0;
        for mutant in &mutants {
            if limit.is_some_and(|limit| begin.elapsed() > limit) {
                left_out += mutant.rows.len();
                continue;
            }
            let verdicts = self.verdicts(mutant)?;
            for (row, verdict) in mutant.rows.iter().zip(verdicts) {
                let line = format!("{row}: {}: {verdict}", mutant.breaks);
                println!("{:6.0} s  {line}", begin.elapsed().as_secs_f64());
                if verdict.starts_with("killed") {
                    self.killed += 1;
                } else {
                    self.failures.push(line);
                }
            }
        }
        if left_out > 0 {
            println!("{left_out} not begun: the time was over");
        }
        println!(
            "conformance mutants: {} killed, {} not, {left_out} not begun",
            self.killed,
            self.failures.len()
        );
        self.failures.iter().for_each(|line| println!("- {line}"));
        Ok(self.failures.is_empty())
    }

    /// What becomes of a mutant, for each of its rows.
    fn verdicts(&mut self, mutant: &Mutant) -> Result<Vec<String>, String> {
        let same = |verdict: String| vec![verdict; mutant.rows.len()];
        if let Err(why) = self.tree.mutate(&mutant.edits())? {
            return Ok(same(format!("DOES NOT APPLY: {why}")));
        }
        let mut killers: BTreeMap<&String, String> = BTreeMap::new();
        let mut broken = None;
        let all = self.cited(mutant.rows.iter())?;
        for group in cited::groups(&all) {
            // What could still kill one of the rows that live.
            let alive = mutant.rows.iter().filter(|row| !killers.contains_key(row));
            let of_alive = self.cited(alive)?;
            let group: Vec<Cited> = group.into_iter().filter(|t| of_alive.contains(t)).collect();
            if group.is_empty() {
                continue;
            }
            match cited::run(&self.tree, &self.target, &self.folder, &group)? {
                Outcome::Ran { failed } => {
                    for row in &mutant.rows {
                        let of_row = self.cited(std::iter::once(row))?;
                        if let Some(by) = failed.iter().find(|test| of_row.contains(test)) {
                            killers.entry(row).or_insert_with(|| by.to_string());
                        }
                    }
                }
                Outcome::NotBuilt { why } => {
                    broken = Some(format!("DOES NOT COMPILE: {why}"));
                    break;
                }
            }
        }
        self.tree.restore()?;
        let verdict = |row| match (killers.get(row), &broken) {
            (Some(by), _) => format!("killed by {by}"),
            (None, Some(broken)) => broken.clone(),
            (None, None) => "SURVIVED".to_string(),
        };
        Ok(mutant.rows.iter().map(verdict).collect())
    }

    /// The tests of these rows that are run: the quick ones, where a row has any.
    fn cited<'b>(&self, rows: impl Iterator<Item = &'b String>) -> Result<BTreeSet<Cited>, String> {
        let mut all = BTreeSet::new();
        for id in rows {
            let row = self.tables.get(id).ok_or(format!("there is no row {id}"))?;
            all.extend(cited::of_row(row)?);
        }
        Ok(all)
    }
}
