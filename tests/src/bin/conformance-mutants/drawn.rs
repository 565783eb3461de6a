//! Mutants that nobody chose: lines of an area of the sources, drawn by a seed, each with a small change
//! that is drawn as well. `tests/conformance-mutants/drawn/AREA.toml` says what files an area has and
//! which tests notice.
//!
//! One build has all of them: each is behind a switch ([`switch`]), and the tests are run once for each with
//! `RNIC_MUTANT=NUMBER`. What does not compile is taken out, and others are drawn for it.

mod build;
mod c_sites;
mod list;
mod run;
mod sites;
mod switch;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use serde::Deserialize;

use crate::mutants::lot;
use crate::tree::Tree;
use build::{Builder, Stage};
use list::{Entry, List};
use run::Binary;
use sites::Site;

pub struct Wanted<'a> {
    pub area: &'a str,
    pub from: From,
    pub seed: u64,
    /// Only prints them, also those that do not compile.
    pub only_print: bool,
    /// Begins no further one when the tests have taken so long. Builds do not count.
    pub limit: Option<Duration>,
    /// The first so many stages of the tests.
    pub stages: usize,
}

/// Where mutants are drawn from.
#[derive(Clone, Copy)]
pub enum From {
    /// So many from all lines of the area.
    Lines(usize),
    /// So many from the area's list, of those that were noticed.
    Noticed(usize),
    Lived,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Area {
    /// Files and folders, from the root of the workspace.
    files: Vec<String>,
    #[serde(default)]
    except: Vec<String>,
    /// The tests, the quickest first: a mutant that one has noticed sees no later one.
    stage: Vec<Stage>,
}

/// A mutant, under the number that switches it on.
#[derive(Clone, Debug)]
struct Drawn {
    file: String,
    /// From 0.
    line: usize,
    /// The line, without the spaces around it, and which of the file's lines with this text it is, from 1.
    text: String,
    time: usize,
    site: Site,
}

impl Drawn {
    /// What it is drawn by from a list.
    fn key(&self) -> String {
        format!(
            "{} {} {} {}",
            self.file, self.time, self.text, self.site.change
        )
    }

    /// As a list has it, but for the verdict; after that the line's number.
    fn entry(&self) -> String {
        let (file, time, line) = (&self.file, self.time, self.line + 1);
        format!(
            "\t{file}\t{time}\t{}\t{}\t{line}",
            self.site.change, self.text
        )
    }
}

impl std::fmt::Display for Drawn {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (file, line) = (&self.file, self.line + 1);
        write!(f, "{file}:{line}: {} [{}]", self.text, self.site.change)
    }
}

/// Draws mutants and looks whether the tests notice: whether all of them were noticed.
pub fn judge(root: &Path, wanted: &Wanted<'_>) -> Result<bool, String> {
    let begin = Instant::now();
    let since = || begin.elapsed().as_secs();
    let area = area(root, wanted.area)?;
    let list = List::read(root, wanted.area)?;
    let sources = Sources::read(root, &area)?;
    let (order, count) = match wanted.from {
        From::Lines(count) => (sources.draw(&list, wanted.seed), count),
        From::Noticed(count) => {
            let mut kept = sources.of_list(list.noticed())?;
            // Without the stage that noticed it one would live.
            let stages: Vec<&Stage> = area.stage.iter().take(wanted.stages).collect();
            kept.retain(|mutant| stages.iter().any(|stage| stage.is_for(&mutant.file)));
            kept.sort_by_key(|mutant| lot(wanted.seed, &mutant.key()));
            kept.truncate(count);
            (kept, count)
        }
        From::Lived => (sources.of_list(list.lived())?, usize::MAX / 2),
    };
    println!("drawn from {} with --seed {}", wanted.area, wanted.seed);
    if wanted.only_print {
        order
            .iter()
            .take(count)
            .for_each(|mutant| println!("{}", mutant.entry()));
        return Ok(true);
    }
    let folder = root.join("target/mutants/drawn");
    let builder = Builder::new(
        Tree::copy(root, &folder.join("tree"), "drawn")?,
        root,
        &folder,
    );
    let mutants = sources.compile(&builder, order, count)?;
    println!("{:5} s  {} mutants compile", since(), mutants.len());
    let mut tests: Vec<Tests<'_>> = area
        .stage
        .iter()
        .take(wanted.stages)
        .map(Tests::new)
        .collect();
    let (mut noticed, mut lived, mut left_out) = (0, Vec::new(), 0);
    let mut judging = Duration::ZERO;
    for (index, mutant) in mutants.iter().enumerate() {
        if wanted.limit.is_some_and(|limit| judging > limit) {
            left_out += 1;
            continue;
        }
        let mut failed = None;
        for stage in &mut tests {
            if !stage.stage.is_for(&mutant.file) {
                continue;
            }
            let of = stage.stage;
            let binaries = stage.built(&builder)?;
            let begin = Instant::now();
            failed = of.run(binaries, index as u32 + 1)?;
            judging += begin.elapsed();
            if failed.is_some() {
                break;
            }
        }
        match failed {
            Some(test) => {
                println!("{:5} s  {mutant}: noticed by {test}", since());
                noticed += 1;
            }
            None => {
                println!("{:5} s  {mutant}: LIVES", since());
                lived.push(mutant);
            }
        }
    }
    println!(
        "{}: {} drawn, {noticed} noticed, {} lived, {left_out} not begun",
        wanted.area,
        mutants.len(),
        lived.len()
    );
    lived.iter().for_each(|mutant| println!("- {mutant}"));
    Ok(lived.is_empty())
}

/// The tests of a stage, which are built when the first mutant needs them.
struct Tests<'a> {
    stage: &'a Stage,
    binaries: Option<Vec<Binary>>,
}

impl<'a> Tests<'a> {
    fn new(stage: &'a Stage) -> Self {
        Self {
            stage,
            binaries: None,
        }
    }

    /// They are there, and pass without any mutant.
    fn built(&mut self, builder: &Builder) -> Result<&[Binary], String> {
        if self.binaries.is_none() {
            let mut binaries = builder.build(self.stage)?;
            if let Some(failed) = self.stage.run_unchanged(&mut binaries)? {
                return Err(format!("without any mutant {failed} fails"));
            }
            self.binaries = Some(binaries);
        }
        Ok(self.binaries.as_deref().unwrap_or_default())
    }
}

fn area(root: &Path, name: &str) -> Result<Area, String> {
    let path = root.join(format!("tests/conformance-mutants/drawn/{name}.toml"));
    let told = |error: &dyn std::fmt::Display| format!("{}: {error}", path.display());
    let text = std::fs::read_to_string(&path).map_err(|error| told(&error))?;
    toml::from_str(&text).map_err(|error| told(&error))
}

/// The files of an area that have sites.
struct Sources {
    texts: BTreeMap<String, String>,
    /// Numbered from 1; none is where one did not compile.
    sites: BTreeMap<String, BTreeMap<usize, Vec<Site>>>,
}

impl Sources {
    fn read(root: &Path, area: &Area) -> Result<Self, String> {
        let mut files = BTreeSet::new();
        for name in &area.files {
            let path = root.join(name);
            if !path.exists() {
                return Err(format!("the area has {name}, which is not there"));
            }
            collect(root, &path, &mut files);
        }
        files.retain(|file| !area.except.iter().any(|except| file.starts_with(except)));
        let (mut texts, mut sites) = (BTreeMap::new(), BTreeMap::new());
        for file in files {
            let path = root.join(&file);
            let told = |error: &dyn std::fmt::Display| format!("{file}: {error}");
            let mut text = std::fs::read_to_string(&path).map_err(|error| told(&error))?;
            for (_, before, switch) in switch::C_SWITCH.iter().filter(|(of, ..)| *of == file) {
                text = text.replacen(before, &format!("{switch}{before}"), 1);
            }
            let of_file = match file.ends_with(".rs") {
                true => sites::of(&text).map_err(|error| told(&error))?,
                false => c_sites::of(&text),
            };
            sites.insert(file.clone(), of_file);
            texts.insert(file, text);
        }
        Ok(Self { texts, sites })
    }

    /// All mutants of a line with sites, the lines in the order of their lots. A line's lot comes from its
    /// text, so that it stays the same when other lines come and go.
    fn lines(&self) -> Vec<Vec<Drawn>> {
        let mut all = Vec::new();
        for (file, lines) in &self.sites {
            let texts: Vec<&str> = self.texts[file].lines().map(str::trim).collect();
            let mut times: BTreeMap<&str, usize> = BTreeMap::new();
            for (&line, sites) in lines {
                let text = texts[line];
                let time = times.entry(text).or_default();
                *time += 1;
                let drawn = |site: &Site| Drawn {
                    file: file.clone(),
                    line,
                    text: text.to_string(),
                    time: *time,
                    site: site.clone(),
                };
                all.push(sites.iter().map(drawn).collect());
            }
        }
        all
    }

    /// One mutant of each line, in the order of the lots.
    fn draw(&self, list: &List, seed: u64) -> Vec<Drawn> {
        let mut drawn: Vec<(u64, Drawn)> = Vec::new();
        for mut of_line in self.lines() {
            let first = &of_line[0];
            let lot = lot(
                seed,
                &format!("{} {} {}", first.file, first.time, first.text),
            );
            let mutant = of_line.swap_remove(lot as usize % of_line.len());
            if !list.is_equivalent(&mutant) {
                drawn.push((lot, mutant));
            }
        }
        drawn.sort_by_key(|(lot, _)| *lot);
        drawn.into_iter().map(|(_, drawn)| drawn).collect()
    }

    /// Mutants of the list, as they are in the sources now.
    fn of_list<'a>(&self, entries: impl Iterator<Item = &'a Entry>) -> Result<Vec<Drawn>, String> {
        let all: Vec<Drawn> = self.lines().into_iter().flatten().collect();
        let mut found = Vec::new();
        for entry in entries {
            let mutant = all.iter().find(|mutant| entry.is(mutant));
            let mutant = mutant.ok_or_else(|| {
                format!(
                    "this mutant's line has changed, so nothing is known of it: take it out of the list in \
                     tests/conformance-mutants/drawn: {entry}"
                )
            })?;
            found.push(mutant.clone());
        }
        Ok(found)
    }

    /// The first so many that compile, which are in the copy then.
    fn compile(
        &self,
        builder: &Builder,
        mut order: Vec<Drawn>,
        count: usize,
    ) -> Result<Vec<Drawn>, String> {
        // More than are wanted at first, so that those that do not compile are found together.
        let mut tried = count.saturating_add(count / 2);
        loop {
            let mutants = &order[..tried.min(order.len())];
            let bad = builder.check(&self.texts, mutants)?;
            if bad.is_empty() && mutants.len() <= count {
                return Ok(mutants.to_vec());
            }
            println!("{} of {} do not compile", bad.len(), mutants.len());
            if bad.is_empty() {
                tried = count;
            }
            let mut index = 0..;
            order.retain(|_| index.next().is_none_or(|index| !bad.contains(&index)));
        }
    }
}

/// Sources below a path, without tests and models.
fn collect(root: &Path, path: &Path, files: &mut BTreeSet<String>) {
    if path.is_dir() {
        let entries = std::fs::read_dir(path).into_iter().flatten().flatten();
        let paths: Vec<PathBuf> = entries.map(|entry| entry.path()).collect();
        paths.iter().for_each(|path| collect(root, path, files));
        return;
    }
    let is_of_tests = path.components().any(|part| {
        let name = part.as_os_str().to_string_lossy();
        ["tests", "tests.rs", "models.rs", "modelled.rs"].contains(&&*name)
    });
    let is_code = path
        .extension()
        .is_some_and(|kind| ["rs", "c", "h"].iter().any(|of| kind == *of));
    if is_code && !is_of_tests {
        let name = path.strip_prefix(root).unwrap_or(path);
        files.insert(name.display().to_string());
    }
}
