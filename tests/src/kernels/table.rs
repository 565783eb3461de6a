//! The results of the cases.

use std::fmt;

use super::machine::{Machine, Opened};
use super::{Case, Expected, Other};

/// A table in Markdown, a row for each case.
#[derive(Debug, Default)]
pub struct Table {
    rows: Vec<String>,
    surprises: usize,
}

impl Table {
    /// Adds a row, and prints it at once.
    pub(super) fn add(&mut self, machine: &Machine, case: &Case, result: Result<Opened, String>) {
        let as_expected = match (&result, case.expected) {
            (Ok(opened), Expected::Works) => {
                // No other case may have this warning.
                let joins = opened.log.contains("joins received frames");
                opened.log.contains(case.says) && (joins == case.says.contains("joins"))
            }
            (Err(why), Expected::Refused(words)) => why.contains(words),
            _ => false,
        };
        let (copies, found) = match &result {
            Ok(opened) if opened.zero_copy => ("zero-copy", "works".to_owned()),
            Ok(_) => ("copy", "works".to_owned()),
            Err(why) => ("", why.replace('\n', " ").replace('|', "/")),
        };
        let other = match case.other {
            Other::Host => "RNIC on the host",
            Other::Rnic => "RNIC in the machine",
            Other::Siw => "siw in the machine",
        };
        let surprise = if as_expected {
            ""
        } else {
            "**not expected**: "
        };
        let Case {
            driver,
            mode,
            queues,
            mtu,
            more,
            ..
        } = case;
        let kernel = &machine.release;
        let row = format!(
            "| {kernel} | {driver} | {mode}{} | {copies} | {queues} | {mtu} | {other} | {surprise}{found} |",
            if more.is_empty() {
                String::new()
            } else {
                format!(", `{more}`")
            }
        );
        eprintln!("{row}");
        self.rows.push(row);
        self.surprises += usize::from(!as_expected);
    }

    /// Whether each case came to what it must.
    #[must_use]
    pub fn is_as_expected(&self) -> bool {
        !self.rows.is_empty() && self.surprises == 0
    }
}

impl fmt::Display for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "| kernel | driver | mode | AF_XDP | queues | MTU | other end | result |\n\
             |---|---|---|---|---|---|---|---|"
        )?;
        self.rows.iter().try_for_each(|row| writeln!(f, "{row}"))
    }
}
