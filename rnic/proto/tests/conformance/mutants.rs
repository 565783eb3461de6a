//! Mutants: for a row of the tables, one small change that breaks its rule and that one of the tests
//! which the row cites has to notice. `tests/conformance-mutants/*.toml` has them;
//! `scripts/conformance-mutants` makes them and runs the tests.
//!
//! A change replaces `find` by `replace` in one file. `find` is there once, or, with `after`, it is the
//! first one behind that text, which is there once. So a mutant stays where its rule is while code around it
//! moves. When the rule itself moves, the mutant fails to apply and is mended by hand.

use std::path::{Path, PathBuf};

use serde::Deserialize;

/// One change and the rows whose rule it breaks.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Mutant {
    /// Each of them is to have a test that fails.
    pub rows: Vec<String>,
    /// What the program does wrong then.
    pub breaks: String,
    /// From the root of the workspace.
    pub file: String,
    #[serde(default)]
    pub after: String,
    pub find: String,
    pub replace: String,
    /// Where a rule is written in several places: the others.
    #[serde(default)]
    pub also: Vec<Edit>,
}

/// A further change of the same mutant.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Edit {
    pub file: String,
    #[serde(default)]
    pub after: String,
    pub find: String,
    pub replace: String,
}

/// A row that was drawn and that no change of a few lines can break.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Exempt {
    pub row: String,
    pub why: String,
}

/// What one file of them has.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Mutants {
    #[serde(default)]
    pub mutant: Vec<Mutant>,
    #[serde(default)]
    pub exempt: Vec<Exempt>,
}

impl Mutant {
    pub fn edits(&self) -> Vec<Edit> {
        let first = Edit {
            file: self.file.clone(),
            after: self.after.clone(),
            find: self.find.clone(),
            replace: self.replace.clone(),
        };
        std::iter::once(first).chain(self.also.clone()).collect()
    }
}

impl Edit {
    /// The file's text with the change made, or why it can't be.
    pub fn apply(&self, text: &str) -> Result<String, String> {
        if self.find.trim().is_empty() || self.find == self.replace {
            return Err("changes nothing".to_string());
        }
        let at = if self.after.is_empty() {
            only(text, &self.find)?
        } else {
            let from = only(text, &self.after)? + self.after.len();
            let found = text[from..].find(&self.find);
            from + found.ok_or_else(|| format!("no {:?} after {:?}", self.find, self.after))?
        };
        let behind = &text[at + self.find.len()..];
        Ok(format!("{}{}{behind}", &text[..at], self.replace))
    }
}

/// Where `what` is in the text, once.
fn only(text: &str, what: &str) -> Result<usize, String> {
    let mut places = text.match_indices(what).map(|(at, _)| at);
    match (places.next(), places.count()) {
        (Some(at), 0) => Ok(at),
        (None, _) => Err(format!("no {what:?}")),
        (_, more) => Err(format!("{} times {what:?}, not once", more + 1)),
    }
}

/// All mutants of the workspace at `root`, by the names of their files.
pub fn load(root: &Path) -> Result<Mutants, String> {
    let folder = root.join("tests/conformance-mutants");
    let entries = std::fs::read_dir(&folder).map_err(|e| format!("{}: {e}", folder.display()))?;
    let paths = entries.map(|entry| entry.map(|entry| entry.path()));
    let paths: Result<Vec<PathBuf>, _> = paths.collect();
    let mut paths = paths.map_err(|e| format!("{}: {e}", folder.display()))?;
    paths.retain(|path| path.extension().is_some_and(|kind| kind == "toml"));
    paths.sort();
    let mut all = Mutants::default();
    for path in paths {
        let told = |error: &dyn std::fmt::Display| format!("{}: {error}", path.display());
        let text = std::fs::read_to_string(&path).map_err(|error| told(&error))?;
        let found: Mutants = toml::from_str(&text).map_err(|error| told(&error))?;
        all.mutant.extend(found.mutant);
        all.exempt.extend(found.exempt);
    }
    Ok(all)
}

/// A number that comes from a seed and an id, and from nothing else. Rows are drawn in the order of theirs, so
/// that a row that comes or goes leaves the order of the others.
pub fn lot(seed: u64, id: &str) -> u64 {
    // FNV-1a, then the finish of SplitMix64.
    let hash = id.bytes().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    });
    let mut lot = (seed ^ hash).wrapping_add(0x9e37_79b9_7f4a_7c15);
    lot = (lot ^ (lot >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    lot = (lot ^ (lot >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    lot ^ (lot >> 31)
}
