//! The mutants of an area that were judged, in `tests/conformance-mutants/drawn/AREA.tsv`, one a line: the
//! verdict, the file, which of the file's lines with the same text it is, the change, and the line's text.
//! By its text a mutant is found again when lines move.

use std::fmt;
use std::path::Path;

use super::Drawn;

/// A line of the file.
#[derive(Debug)]
pub struct Entry {
    /// `noticed`, `lives` or `equivalent`; with why, behind a colon.
    verdict: String,
    file: String,
    time: usize,
    change: String,
    text: String,
}

impl Entry {
    fn parse(line: &str) -> Option<Self> {
        let parts: Vec<&str> = line.splitn(5, '\t').collect();
        let &[verdict, file, time, change, text] = parts.as_slice() else {
            return None;
        };
        let kind = verdict.split(':').next()?;
        ["noticed", "lives", "equivalent"]
            .contains(&kind)
            .then_some(())?;
        Some(Self {
            verdict: verdict.to_string(),
            file: file.to_string(),
            time: time.parse().ok()?,
            change: change.to_string(),
            text: text.to_string(),
        })
    }

    pub fn is(&self, mutant: &Drawn) -> bool {
        self.file == mutant.file
            && self.time == mutant.time
            && self.text == mutant.text
            && self.change == mutant.site.change
    }
}

impl fmt::Display for Entry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {} [{}]", self.file, self.text, self.change)
    }
}

pub struct List(Vec<Entry>);

impl List {
    /// Empty, if the area has none yet.
    pub fn read(root: &Path, area: &str) -> Result<Self, String> {
        let name = format!("tests/conformance-mutants/drawn/{area}.tsv");
        let text = std::fs::read_to_string(root.join(&name)).unwrap_or_default();
        let lines = text
            .lines()
            .filter(|line| !line.is_empty() && !line.starts_with('#'));
        let entries = lines.map(|line| Entry::parse(line).ok_or(format!("{name}: {line:?}")));
        Ok(Self(entries.collect::<Result<_, _>>()?))
    }

    pub fn noticed(&self) -> impl Iterator<Item = &Entry> {
        self.of("noticed")
    }

    pub fn lived(&self) -> impl Iterator<Item = &Entry> {
        self.of("lives")
    }

    /// Whether no test can notice it.
    pub fn is_equivalent(&self, mutant: &Drawn) -> bool {
        self.of("equivalent").any(|entry| entry.is(mutant))
    }

    fn of(&self, verdict: &str) -> impl Iterator<Item = &Entry> {
        self.0
            .iter()
            .filter(move |entry| entry.verdict.starts_with(verdict))
    }
}
