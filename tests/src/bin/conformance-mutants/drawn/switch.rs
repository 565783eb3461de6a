//! Writes sources in which every mutant can be switched on while the program runs, so that one build has
//! all of them. Lines stay lines.

use std::ops::Range;

use super::sites::Site;

/// What is added to each crate that has mutants.
pub const MODULE: &str = r#"
#[doc(hidden)]
#[allow(clippy::all)]
pub mod mutant_switch {
    static ON: std::sync::LazyLock<u32> = std::sync::LazyLock::new(|| {
        let number = std::env::var("RNIC_MUTANT").ok();
        number.and_then(|number| number.parse().ok()).unwrap_or(0)
    });
    pub fn on(number: u32) -> bool {
        *ON == number
    }
    pub fn number() -> u32 {
        *ON
    }
}
"#;

/// In the BPF programs the number is a constant that is set when they are loaded: file, text, what comes
/// before it.
pub const C_SWITCH: [(&str, &str, &str); 2] = [
    (
        "ebpf/src/steer.bpf.c",
        "static void *(*bpf_map_lookup_elem)",
        "volatile const __u32 MUTANT; ",
    ),
    (
        "ebpf/src/program.rs",
        ".override_global(\"RATES\"",
        ".override_global(\"MUTANT\", &crate::mutant_switch::number(), true) ",
    ),
];

/// A file's text with its mutants, and where each of them is in it.
pub fn write(
    file: &str,
    text: &str,
    mutants: &[(u32, &Site)],
) -> (String, Vec<(u32, Range<usize>)>) {
    let mut order: Vec<(u32, &Site)> = mutants.to_vec();
    // Outer ones before what is in them.
    order.sort_by_key(|(number, site)| {
        let Range { start, end } = site.range;
        (start, usize::MAX - end, !site.is_statement, *number)
    });
    let mut out = String::new();
    let mut places = Vec::new();
    let is_c = !file.ends_with(".rs");
    part(is_c, text, 0..text.len(), &order, &mut out, &mut places);
    (out, places)
}

fn part(
    is_c: bool,
    text: &str,
    range: Range<usize>,
    mut mutants: &[(u32, &Site)],
    out: &mut String,
    places: &mut Vec<(u32, Range<usize>)>,
) {
    let mut at = range.start;
    while let Some(((number, site), others)) = mutants.split_first() {
        let inner = others.partition_point(|(_, other)| other.range.start < site.range.end);
        out.push_str(&text[at..site.range.start]);
        let begin = out.len();
        let changed: String = site.changed.lines().map(without_comment).collect();
        let (open, close) = match (is_c, site.is_statement) {
            (true, false) => (format!("(MUTANT == {number} ? ({changed}) : ("), "))"),
            // One statement still, so that an else belongs to the same if.
            (true, true) => (
                format!("do {{ if (MUTANT != {number}) {{ "),
                " } } while (0);",
            ),
            (false, _) => {
                let open =
                    format!("if crate::mutant_switch::on({number}) {{ {changed} }} else {{ ");
                match site.is_statement {
                    true => (open, " }"),
                    false => (format!("({open}"), " })"),
                }
            }
        };
        out.push_str(&open);
        part(
            is_c,
            text,
            site.range.clone(),
            &others[..inner],
            out,
            places,
        );
        out.push_str(close);
        places.push((*number, begin..out.len()));
        at = site.range.end;
        mutants = &others[inner..];
    }
    out.push_str(&text[at..range.end]);
}

fn without_comment(line: &str) -> String {
    let code = line.split_once("// ").map_or(line, |(code, _)| code);
    format!("{} ", code.trim())
}
