//! The same for the C of the BPF programs, line by line: what is returned, assigned or asked on one line,
//! and what is done there.

use std::collections::BTreeMap;
use std::ops::Range;

use super::sites::{Site, numbered};

/// The sites of a file, by the line (from 0).
pub fn of(text: &str) -> BTreeMap<usize, Vec<Site>> {
    let mut sites = BTreeMap::new();
    let mut at = 0;
    for (number, line) in text.lines().enumerate() {
        // Functions alone are indented and end their lines so.
        let of_line = match line.starts_with('\t') && !line.trim_start().starts_with(['*', '/']) {
            true => of_line(line, at),
            false => Vec::new(),
        };
        if !of_line.is_empty() {
            sites.insert(number, of_line);
        }
        at += line.len() + 1;
    }
    sites
}

fn of_line(line: &str, at: usize) -> Vec<Site> {
    let mut sites = Vec::new();
    let code = line.trim();
    let from = at + line.len() - line.trim_start().len();
    let site = |range: Range<usize>, changed: String, is_statement: bool, change: String| Site {
        range: from + range.start..from + range.end,
        changed,
        is_statement,
        change,
    };
    let asked = code.find("if (").map(|found| found + 3);
    let asked = asked.and_then(|start| Some(start + 1..start + closing(&code[start..])?));
    let ends = code.strip_suffix(';').map(str::len);
    let value = match (&asked, ends) {
        (Some(_), _) => asked.clone(),
        (None, Some(end)) if code.starts_with("return ") => Some(7..end),
        (None, Some(end)) if !code.starts_with("for") => code.find("= ").map(|is| is + 2..end),
        _ => None,
    };
    if let Some(range) = value {
        let text = &code[range.clone()];
        for (changed, change) in changes(text) {
            let change = numbered(change, &sites);
            sites.push(site(range.clone(), changed, false, change));
        }
        if asked.is_some() {
            let changed = format!("!({text})");
            sites.push(site(range, changed, false, "condition negated".to_string()));
        }
    }
    let first = code.split(' ').next().unwrap_or(code);
    let is_done = first.contains('(') || code.split(' ').nth(1).is_some_and(|op| op.ends_with('='));
    if ends.is_some() && is_done && asked.is_none() && !code.starts_with("return") {
        sites.push(site(
            0..code.len(),
            String::new(),
            true,
            "left out".to_string(),
        ));
    }
    sites
}

/// An expression with one operator or number changed.
fn changes(text: &str) -> Vec<(String, String)> {
    let others = [
        ("<", "<="),
        ("<=", "<"),
        (">", ">="),
        (">=", ">"),
        ("==", "!="),
        ("!=", "=="),
        ("&&", "||"),
        ("||", "&&"),
        ("+", "-"),
        ("-", "+"),
        ("*", "+"),
        ("&", "|"),
        ("|", "&"),
        ("<<", ">>"),
        (">>", "<<"),
    ];
    let mut changes = Vec::new();
    let mut at = 0;
    for word in text.split(' ') {
        let put = |new: &str, len: usize| format!("{}{new}{}", &text[..at], &text[at + len..]);
        if let Some((_, other)) = others.iter().find(|(one, _)| *one == word) {
            changes.push((put(other, word.len()), format!("{word} is {other}")));
        }
        let digits = word.bytes().take_while(u8::is_ascii_digit).count();
        if digits > 0 && !word.starts_with("0x") {
            let more = format!("({} + 1)", &word[..digits]);
            changes.push((put(&more, digits), "one more".to_string()));
        }
        if word.starts_with('!') && word != "!=" {
            changes.push((put("", 1), "! left out".to_string()));
        }
        at += word.len() + 1;
    }
    changes
}

/// Where the parenthesis that a text begins with is closed, at the end of the line.
fn closing(text: &str) -> Option<usize> {
    let mut depth = 0;
    let end = text.char_indices().find_map(|(at, c)| {
        depth += i32::from(c == '(') - i32::from(c == ')');
        (depth == 0).then_some(at)
    })?;
    ["", " {"].contains(&&text[end + 1..]).then_some(end)
}
