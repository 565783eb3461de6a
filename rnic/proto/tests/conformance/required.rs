//! The numbered requirements: ids and levels, as the committed list has them.

/// The RFCs, in the order of the summary.
pub const RFCS: [&str; 8] = [
    "5040", "5041", "5042", "5043", "5044", "6581", "7306", "9260",
];

const LIST: &str = include_str!("requirements.txt");

/// One numbered requirement.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Required {
    pub id: String,
    pub level: String,
}

impl Required {
    fn new(id: &str, level: &str) -> Self {
        Self {
            id: id.to_string(),
            level: level.to_string(),
        }
    }

    /// The requirements of a table of tab-separated id, level and text, under a line of titles.
    pub fn parse_tsv(text: &str) -> Vec<Self> {
        let rows = text.lines().skip(1).map(|line| line.split('\t'));
        rows.filter_map(|mut cells| Some(Self::new(cells.next()?, cells.next()?)))
            .collect()
    }
}

/// The requirements of one RFC, in their order.
pub fn of(rfc: &str) -> Vec<Required> {
    let prefix = format!("RFC{rfc}-");
    let lines = LIST.lines().filter(|line| line.starts_with(&prefix));
    lines
        .map(|line| {
            let (id, level) = line.split_once(' ').expect("an id and a level");
            Required::new(id, level)
        })
        .collect()
}

#[test]
fn the_list_has_requirements_of_every_rfc_and_no_others() {
    let total: usize = RFCS.map(|rfc| of(rfc).len()).into_iter().sum();
    assert_eq!(total, LIST.lines().count());
    assert!(RFCS.iter().all(|rfc| of(rfc).len() > 30));
}
