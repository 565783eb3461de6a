//! Builds the copy with its mutants, and its tests.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::time::{Duration, Instant};

use serde::Deserialize;

use super::run::Binary;
use super::{Drawn, switch};
use crate::tree::{Tree, target_of};

/// Tests that are run together.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Stage {
    /// What begins so is judged by these tests; everything, if there is nothing.
    #[serde(default)]
    of: Vec<String>,
    packages: Vec<String>,
    /// Test binaries, `lib` for the libraries' own; all of the packages, if there is nothing.
    #[serde(default)]
    binaries: Vec<String>,
    /// Packages of programs and libraries that the tests start.
    #[serde(default)]
    programs: Vec<String>,
    /// What the test binaries are told: filters, `--skip` and whatever else they know.
    #[serde(default)]
    arguments: Vec<String>,
    /// How long one of them may take at least, in seconds: then a test hangs, which notices the mutant.
    #[serde(default = "a_minute_and_a_half")]
    seconds: u64,
}

/// Without any mutant a binary may take so many times as long as the stage says: the machine may be busy.
const BUSY: u32 = 8;

/// With a mutant it may take so many times as long as without.
const SLOWER: u32 = 3;

fn a_minute_and_a_half() -> u64 {
    90
}

impl Stage {
    /// The first test of the stage that does not pass with a mutant.
    pub fn run(&self, binaries: &[Binary], mutant: u32) -> Result<Option<String>, String> {
        for binary in binaries {
            let failed = binary.run(&self.arguments, mutant)?;
            if failed.is_some() {
                return Ok(failed);
            }
        }
        Ok(None)
    }

    /// Runs the stage without any mutant, and sets how long each binary may take with one: the first test
    /// that fails.
    pub fn run_unchanged(&self, binaries: &mut [Binary]) -> Result<Option<String>, String> {
        let seconds = Duration::from_secs(self.seconds);
        for binary in binaries {
            binary.limit = seconds * BUSY;
            let begin = Instant::now();
            let failed = binary.run(&self.arguments, 0)?;
            if failed.is_some() {
                return Ok(failed);
            }
            binary.limit = seconds.max(begin.elapsed() * SLOWER);
        }
        Ok(None)
    }

    pub fn is_for(&self, file: &str) -> bool {
        self.of.is_empty() || self.of.iter().any(|of| file.starts_with(of))
    }

    fn selection(&self) -> Vec<&str> {
        let mut selection = Vec::new();
        self.packages
            .iter()
            .for_each(|package| selection.extend(["-p", package]));
        for binary in &self.binaries {
            match binary.as_str() {
                "lib" => selection.push("--lib"),
                binary => selection.extend(["--test", binary]),
            }
        }
        selection
    }
}

/// The copy and where it is built.
pub struct Builder {
    tree: Tree,
    /// The work tree's own: what is not of the workspace is built there already.
    target: PathBuf,
    /// For programs, which would take the place of the work tree's.
    of_programs: PathBuf,
}

impl Builder {
    pub fn new(tree: Tree, root: &Path, folder: &Path) -> Self {
        Self {
            tree,
            target: target_of(root),
            of_programs: folder.join("build"),
        }
    }

    /// Writes the mutants into the copy and checks it: those that do not compile, by their places.
    pub fn check(
        &self,
        texts: &BTreeMap<String, String>,
        mutants: &[Drawn],
    ) -> Result<BTreeSet<usize>, String> {
        let mut places: BTreeMap<&str, Vec<(u32, Range<usize>)>> = BTreeMap::new();
        let roots: BTreeSet<String> = texts.keys().filter_map(|file| root_of(file)).collect();
        let others = roots.iter().filter(|root| !texts.contains_key(*root));
        for root in others {
            let text = self.original(root)?;
            self.write(root, &format!("{text}{}", switch::MODULE))?;
        }
        for (file, text) in texts {
            let of_file = mutants.iter().enumerate().filter(|(_, m)| m.file == *file);
            let of_file: Vec<_> = of_file
                .map(|(index, m)| (index as u32 + 1, &m.site))
                .collect();
            let (mut text, at) = switch::write(file, text, &of_file);
            if roots.contains(file) {
                text.push_str(switch::MODULE);
            }
            self.write(file, &text)?;
            places.insert(file, at);
        }
        let of_mutants = mutants.iter().filter_map(|mutant| root_of(&mutant.file));
        let packages: BTreeSet<&str> = of_mutants.filter_map(|root| package_of(&root)).collect();
        let mut command = self.cargo(
            &self.target,
            &["build", "--message-format=json", "--keep-going", "--lib"],
        );
        packages.iter().for_each(|package| {
            command.args(["-p", package]);
        });
        let output = told(&mut command)?;
        let mut bad = BTreeSet::new();
        let mut unplaced = Vec::new();
        for line in String::from_utf8_lossy(&output.stdout).lines() {
            let Ok(message) = serde_json::from_str::<serde_json::Value>(line) else {
                continue;
            };
            let message = &message["message"];
            if message["level"] != "error" || message["spans"].as_array().is_none_or(Vec::is_empty)
            {
                continue;
            }
            match blamed(message, &places) {
                Some(number) => drop(bad.insert(number as usize - 1)),
                None => unplaced.push(message["rendered"].to_string()),
            }
        }
        // `src/flood.bpf.h:123:4: error`, of clang.
        for line in String::from_utf8_lossy(&output.stderr).lines() {
            let mut parts = line.trim().splitn(4, ':');
            let (file, line) = (
                parts.next().unwrap_or_default(),
                parts.next().and_then(|l| l.parse().ok()),
            );
            let is_there = |m: &Drawn| m.file.ends_with(file) && Some(m.line + 1) == line;
            if file.starts_with("src/") {
                bad.extend(mutants.iter().position(is_there));
            }
        }
        match (output.status.success(), bad.is_empty()) {
            (true, _) => Ok(BTreeSet::new()),
            (false, false) => Ok(bad),
            _ => Err(format!(
                "the copy does not compile:\n{}\n{}",
                unplaced.join("\n"),
                String::from_utf8_lossy(&output.stderr)
            )),
        }
    }

    /// Builds the tests of a stage, and what they start.
    pub fn build(&self, stage: &Stage) -> Result<Vec<Binary>, String> {
        let target = self.target_of(stage);
        if !stage.programs.is_empty() {
            let mut programs = self.cargo(target, &["build"]);
            for package in &stage.programs {
                programs.args(["-p", package]);
            }
            built(&mut programs)?;
        }
        let mut tests = self.cargo(target, &["test", "--no-run", "--message-format=json"]);
        let told = built(tests.args(stage.selection()))?;
        let mut binaries = Vec::new();
        for line in told.lines() {
            let Ok(message) = serde_json::from_str::<serde_json::Value>(line) else {
                continue;
            };
            let (path, manifest) = (
                message["executable"].as_str(),
                message["manifest_path"].as_str(),
            );
            let (true, Some(path), Some(manifest)) =
                (message["profile"]["test"] == true, path, manifest)
            else {
                continue;
            };
            let package = Path::new(manifest).parent().unwrap_or(self.tree.path());
            binaries.push(Binary {
                path: path.into(),
                package: package.into(),
                limit: Duration::ZERO,
            });
        }
        match binaries.is_empty() {
            true => Err(format!("no tests were built of {:?}", stage.packages)),
            false => Ok(binaries),
        }
    }

    fn target_of(&self, stage: &Stage) -> &Path {
        match stage.programs.is_empty() {
            true => &self.target,
            false => &self.of_programs,
        }
    }

    fn cargo(&self, target: &Path, arguments: &[&str]) -> Command {
        let mut command = Command::new("cargo");
        command.args(arguments).current_dir(self.tree.path());
        command.env("CARGO_TARGET_DIR", target);
        command.env("CARGO_INCREMENTAL", "0");
        command.env("CARGO_TERM_PROGRESS_WHEN", "never");
        command
    }

    fn write(&self, file: &str, text: &str) -> Result<(), String> {
        let path = self.tree.path().join(file);
        if std::fs::read_to_string(&path).is_ok_and(|found| found == text) {
            return Ok(());
        }
        std::fs::write(&path, text).map_err(|error| format!("{file}: {error}"))
    }

    /// A file of the copy without what was added.
    fn original(&self, file: &str) -> Result<String, String> {
        let path = self.tree.path().join(file);
        let text = std::fs::read_to_string(&path).map_err(|e| format!("{file}: {e}"))?;
        Ok(text
            .strip_suffix(switch::MODULE)
            .unwrap_or(&text)
            .to_string())
    }
}

/// What it prints, unless it fails.
fn built(command: &mut Command) -> Result<String, String> {
    let output = told(command)?;
    match output.status.success() {
        true => Ok(String::from_utf8_lossy(&output.stdout).into_owned()),
        false => Err(format!(
            "no tests:\n{}",
            String::from_utf8_lossy(&output.stderr)
        )),
    }
}

fn told(command: &mut Command) -> Result<Output, String> {
    command.output().map_err(|error| format!("cargo: {error}"))
}

/// The root of the crate that has a file.
fn root_of(file: &str) -> Option<String> {
    let (folder, _) = file.split_once("/src/")?;
    Some(format!("{folder}/src/lib.rs"))
}

/// The name of the package that has a crate's root.
fn package_of(root: &str) -> Option<&'static str> {
    let (folder, _) = root.split_once("/src/")?;
    Some(match folder {
        "userspace-sctp" => "userspace-sctp",
        "ebpf" => "rnic-steering",
        "rnic/proto" => "rnic-proto",
        "rnic/engine" => "rnic-engine",
        "rnic/prm" => "rnic-prm",
        "rnic/xsk" => "rnic-xsk",
        "rnic/device" => "rnic-device",
        "rnic/client" => "rnic",
        "rnic/verbs" => "rnic-verbs",
        _ => return None,
    })
}

/// The innermost mutant that an error is about: by its first span, by the others, or by those of its notes, which
/// say what a mutant has taken away.
fn blamed(
    message: &serde_json::Value,
    places: &BTreeMap<&str, Vec<(u32, Range<usize>)>>,
) -> Option<u32> {
    let spans = message["spans"].as_array()?;
    let primary = spans.iter().filter(|span| span["is_primary"] == true);
    let others = spans.iter().filter(|span| span["is_primary"] != true);
    let notes = message["children"].as_array().into_iter().flatten();
    let of_notes = notes.flat_map(|note| note["spans"].as_array().into_iter().flatten());
    let mut all = primary.chain(others).chain(of_notes);
    all.find_map(|span| {
        let of_file = places.get(span["file_name"].as_str()?)?;
        let start = span["byte_start"].as_u64()? as usize;
        let end = span["byte_end"].as_u64()? as usize;
        let within = of_file
            .iter()
            .filter(|(_, at)| at.start <= start && end <= at.end);
        let within = within.min_by_key(|(_, at)| at.len());
        // A span around mutants: the first in it.
        let around = of_file
            .iter()
            .find(|(_, at)| start <= at.start && at.end <= end);
        within.or(around).map(|(number, _)| *number)
    })
}
