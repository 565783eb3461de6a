//! The numbered requirements: every sentence of an RFC that has a MUST, SHOULD or MAY, with its id and level.
//!
//! The lists are in `requirements/*.tsv`, in the RFC's own words. They are the only ones: the tables of
//! `docs/conformance` are held against them.

/// The RFCs, in the order of the summary.
pub const RFCS: [&str; 8] = [
    "5040", "5041", "5042", "5043", "5044", "6581", "7306", "9260",
];

const LISTS: [&str; 8] = [
    include_str!("requirements/rfc5040.tsv"),
    include_str!("requirements/rfc5041.tsv"),
    include_str!("requirements/rfc5042.tsv"),
    include_str!("requirements/rfc5043.tsv"),
    include_str!("requirements/rfc5044.tsv"),
    include_str!("requirements/rfc6581.tsv"),
    include_str!("requirements/rfc7306.tsv"),
    include_str!("requirements/rfc9260.tsv"),
];

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Required {
    pub id: String,
    pub level: String,
    pub text: String,
}

/// The rows of a table of tab-separated id, level and text, under a line of titles.
pub fn parse(list: &str) -> Result<Vec<Required>, String> {
    let mut lines = list.lines();
    if lines.next() != Some("id\tlevel\ttext") {
        return Err("the first line is not that of the titles".to_string());
    }
    let row = |line: &str| match *line.split('\t').collect::<Vec<_>>() {
        [id, level, text] => Ok(Required {
            id: id.to_string(),
            level: level.to_string(),
            text: text.to_string(),
        }),
        _ => Err(format!("not an id, a level and a text: {line}")),
    };
    lines.map(row).collect()
}

/// The requirements of one RFC, in their order.
pub fn of(rfc: &str) -> Vec<Required> {
    let at = RFCS.iter().position(|known| *known == rfc);
    let list = LISTS[at.unwrap_or_else(|| panic!("no list of RFC {rfc}"))];
    parse(list).unwrap_or_else(|why| panic!("requirements/rfc{rfc}.tsv: {why}"))
}

/// Whether a sentence has a keyword of this level (RFC 2119, section 1 to 5).
fn has_level(text: &str, level: &str) -> bool {
    let keywords: &[&str] = match level {
        "MUST" => &["MUST", "SHALL", "REQUIRED"],
        "SHOULD" => &["SHOULD", "RECOMMENDED"],
        "MAY" => &["MAY", "OPTIONAL"],
        _ => return false,
    };
    let mut words = text.split(|character: char| !character.is_alphanumeric());
    words.any(|word| keywords.contains(&word))
}

/// What is wrong with an RFC's list: ids that are not counted from 1 in each section, levels that no word of
/// the sentence gives.
fn complaints(rfc: &str, list: &[Required]) -> Vec<String> {
    let mut counted = std::collections::HashMap::new();
    let mut complaints = Vec::new();
    for Required { id, level, text } in list {
        let numbered = id.strip_prefix(&format!("RFC{rfc}-"));
        let (section, number) = numbered
            .and_then(|id| id.rsplit_once('-'))
            .unwrap_or_default();
        let count = counted.entry(section).or_insert(0);
        *count += 1;
        if section.is_empty() || number != count.to_string() {
            complaints.push(format!(
                "{id}: not number {count} of a section of RFC {rfc}"
            ));
        }
        if !has_level(text, level) {
            complaints.push(format!("{id}: no word of level {level} in: {text}"));
        }
    }
    complaints
}

#[test]
fn every_list_counts_its_sentences_and_has_them_with_their_level() {
    for rfc in RFCS {
        let list = of(rfc);
        assert!(list.len() > 30, "RFC {rfc} has only {}", list.len());
        let complaints = complaints(rfc, &list);
        assert!(complaints.is_empty(), "{complaints:#?}");
    }
}

#[test]
fn a_list_that_lost_a_sentence_or_a_level_is_noticed() {
    let list = parse(
        "id\tlevel\ttext\n\
         RFC1-2-1\tMUST\tIt MUST be so.\n\
         RFC1-2-3\tMAY\tIt MUST be so.\n",
    );
    assert_eq!(
        complaints("1", &list.expect("three cells each")),
        [
            "RFC1-2-3: not number 2 of a section of RFC 1",
            "RFC1-2-3: no word of level MAY in: It MUST be so.",
        ]
    );
    assert!(parse("id\tlevel\ttext\nRFC1-2-1\tMUST\n").is_err());
    assert!(parse("RFC1-2-1\tMUST\tIt MUST be so.\n").is_err());
}
