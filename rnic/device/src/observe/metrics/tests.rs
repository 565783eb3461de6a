use std::collections::{BTreeMap, BTreeSet};

use super::*;
use crate::Runtime;
use crate::requests::tests::Bench;

/// Counters that others tell already.
const DERIVED: [&str; 1] = ["bytes_parked"];

/// A small strict reader of the text format: families by name, with their kinds and samples.
struct Scrape {
    kinds: BTreeMap<String, String>,
    samples: BTreeMap<String, f64>,
}

impl Scrape {
    #[track_caller]
    fn read(text: &str) -> Self {
        let mut scrape = Self {
            kinds: BTreeMap::new(),
            samples: BTreeMap::new(),
        };
        let mut helped = String::new();
        let mut family = String::new();
        assert!(text.ends_with('\n'));
        for line in text.lines() {
            if let Some(help) = line.strip_prefix("# HELP ") {
                let (name, help) = help.split_once(' ').unwrap();
                assert!(help.ends_with('.') && name.starts_with("rnic_"), "{line}");
                helped = name.to_owned();
            } else if let Some(kind) = line.strip_prefix("# TYPE ") {
                let (name, kind) = kind.split_once(' ').unwrap();
                assert_eq!(name, helped, "TYPE behind its HELP");
                family = name.to_owned();
                let twice = scrape.kinds.insert(name.to_owned(), kind.to_owned());
                assert!(twice.is_none(), "{name} comes twice");
                assert_eq!(name.ends_with("_total"), kind == "counter", "{line}");
            } else {
                scrape.sample(line, &family);
            }
        }
        scrape
    }

    #[track_caller]
    fn sample(&mut self, line: &str, family: &str) {
        let (series, value) = line.rsplit_once(' ').unwrap();
        let (name, labels) = match series.split_once('{') {
            Some((name, labels)) => (name, labels.strip_suffix('}').unwrap()),
            None => (series, ""),
        };
        let of_histogram = ["_bucket", "_sum", "_count"]
            .iter()
            .any(|part| name.strip_suffix(part) == Some(family));
        let histogram = self.kinds[family] == "histogram";
        assert!(
            if histogram {
                of_histogram
            } else {
                name == family
            },
            "{line}"
        );
        let mut names = BTreeSet::new();
        for label in labels.split(',').filter(|label| !label.is_empty()) {
            let (label, value) = label.split_once('=').unwrap();
            assert!(names.insert(label), "{line}");
            assert!(
                label
                    .bytes()
                    .all(|byte| byte.is_ascii_lowercase() || byte == b'_'),
                "{line}"
            );
            assert!(value.len() >= 2 && value.starts_with('"') && value.ends_with('"'));
        }
        let value: f64 = value.parse().unwrap();
        let twice = self.samples.insert(series.to_owned(), value);
        assert!(twice.is_none(), "{series} comes twice");
    }
}

#[test]
fn the_text_is_strictly_prometheus_and_every_family_is_announced() {
    let bench = Bench::new(Runtime::Caller);
    let client = bench.client();
    crate::requests::tests::region(&client, crate::requests::tests::pd(&client));
    let scrape = Scrape::read(&bench.device.metrics().unwrap());
    let names: BTreeMap<_, _> = metric_names().into_iter().collect();
    assert_eq!(
        names.len(),
        metric_names().len(),
        "a name is announced twice"
    );
    for (name, kind) in &scrape.kinds {
        assert_eq!(
            names.get(name.as_str()).map(|kind| kind.name()),
            Some(kind.as_str()),
            "{name}"
        );
    }
    let registered = scrape.samples[r#"rnic_registration_duration_seconds_count{interface="lo"}"#];
    assert!((registered - 1.0).abs() < f64::EPSILON);
    let holds = |series: &&String| {
        series.starts_with("rnic_client_holds{") && series.contains("limit=\"regions\"")
    };
    let series = scrape.samples.keys().find(holds).unwrap();
    assert!(
        (scrape.samples[series] - 1.0).abs() < f64::EPSILON,
        "{series}"
    );
}

/// A counter that nobody scrapes would be forgotten.
#[test]
fn every_counter_of_the_device_is_in_the_catalogue_and_no_other() {
    let bench = Bench::new(Runtime::Caller);
    let counted: BTreeSet<String> = bench
        .device
        .counters()
        .unwrap()
        .into_iter()
        .map(|(name, _)| name)
        .collect();
    let mut catalogue = BTreeSet::new();
    for family in SHARD.iter().chain(DEVICE).chain(PRM) {
        for (_, counter) in family.members {
            assert!(
                catalogue.insert((*counter).to_owned()),
                "{counter} comes twice"
            );
        }
    }
    for family in PORT {
        for (_, counter) in family.members {
            assert!(
                catalogue.insert(format!("port0_{counter}")),
                "{counter} comes twice"
            );
        }
    }
    let by_prefix = [
        "refused_client_",
        "refused_user_",
        "refused_device_",
        "refused_interface_",
        "steering_",
    ];
    for counter in &counted {
        let known = catalogue.contains(counter)
            || DERIVED.contains(&counter.as_str())
            || by_prefix.iter().any(|prefix| counter.starts_with(prefix));
        assert!(
            known,
            "{counter} has no metric: give it one in metrics/catalogue.rs"
        );
    }
    for counter in &catalogue {
        // Only with a capture.
        let sometimes = counter.starts_with("capture_");
        assert!(
            sometimes || counted.contains(counter),
            "nothing counts {counter}"
        );
    }
}

#[test]
fn refusals_count_by_their_reason_for_all_and_for_the_client() {
    let bench = Bench::new(Runtime::Caller);
    let client = bench.client();
    let wrong = rnic_ipc::control::Request::DeallocPd {
        pd: rnic_ipc::id::PdId(77),
    };
    client.request(wrong, Vec::new()).0.unwrap_err();
    let scrape = Scrape::read(&bench.device.metrics().unwrap());
    let all = r#"rnic_requests_refused_total{interface="lo",reason="unknown_object"}"#;
    assert!((scrape.samples[all] - 1.0).abs() < f64::EPSILON);
    let mut own = scrape.samples.iter();
    let own = own.find(|(series, _)| series.starts_with("rnic_client_requests_refused_total{"));
    assert!((own.unwrap().1 - 1.0).abs() < f64::EPSILON);
}

#[test]
fn labels_are_escaped() {
    assert_eq!(labels(&[("a", "x\"y\\z\nw")]), r#"a="x\"y\\z\nw""#);
}

/// docs/operations/metrics.md has a row for every metric, with its kind, help and labels, and no other.
#[test]
fn every_metric_is_documented_and_every_documented_one_exists() {
    let path = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../../docs/operations/metrics.md"
    );
    let text = std::fs::read_to_string(path).unwrap();
    let mut rows = BTreeMap::new();
    for line in text.lines() {
        let cells: Vec<&str> = line.split('|').map(str::trim).collect();
        if let &[_, name, kind, meaning, ..] = &cells[..]
            && let Some(name) = name.strip_prefix("`rnic_")
            && ["counter", "gauge", "histogram"].contains(&kind)
        {
            let name = format!("rnic_{}", name.trim_end_matches('`'));
            let labels = cells[4].split(", ").map(|label| label.trim_matches('`'));
            let labels: BTreeSet<_> = labels.filter(|label| !label.is_empty()).collect();
            let (help, own) = declared(&name);
            // A page has links, and may say more after the sentence of the help text.
            let meaning = without_links(meaning);
            let (start, rest) = meaning.split_at(help.len().min(meaning.len()).saturating_sub(1));
            assert_eq!(start, help.trim_end_matches('.'), "{name}");
            assert!(rest.starts_with(['.', ':']), "{line}");
            assert!(own.is_none_or(|own| own == labels), "{line}: labels");
            assert!(
                rows.insert(name, kind.to_owned()).is_none(),
                "{line} comes twice"
            );
        }
    }
    let exist: BTreeMap<String, String> = metric_names()
        .into_iter()
        .map(|(name, kind)| (name.to_owned(), kind.name().to_owned()))
        .collect();
    assert_eq!(rows, exist);
}

/// The help of a metric and, where its samples are counters, the labels that it has beside those of its shard.
#[track_caller]
fn declared(name: &str) -> (&'static str, Option<BTreeSet<&'static str>>) {
    let mut families = SHARD.iter().chain(DEVICE).chain(PRM).chain(PORT);
    if let Some(family) = families.find(|family| family.name == name) {
        let members = family
            .members
            .iter()
            .flat_map(|(labels, _)| labels.split(','));
        let labels = members.filter_map(|label| Some(label.split_once('=')?.0));
        return (family.help, Some(labels.collect()));
    }
    let mut heads = HEADS.iter().map(|(name, help, _)| (*name, *help));
    let head = heads.find(|(known, _)| *known == name);
    let more = [STEERING, LIMITS]
        .into_iter()
        .find(|(known, _)| *known == name);
    let (_, help) = head.or(more).unwrap_or_else(|| panic!("no metric {name}"));
    (help, None)
}

/// Markdown without its links' addresses.
fn without_links(text: &str) -> String {
    let mut plain = String::new();
    let mut rest = text;
    while let Some((before, link)) = rest.split_once('[') {
        let (words, after) = link.split_once("](").unwrap();
        plain += before;
        plain += words;
        rest = after.split_once(')').unwrap().1;
    }
    plain + rest
}

/// The dashboard asks for metrics that exist, in the way of their kind.
#[test]
fn the_dashboard_is_json_and_asks_only_for_metrics_that_exist() {
    let path = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../../docs/grafana-dashboard.json"
    );
    let text = std::fs::read_to_string(path).unwrap();
    let dashboard: serde_json::Value = serde_json::from_str(&text).unwrap();
    let variables = dashboard["templating"]["list"].as_array().unwrap();
    let variables: Vec<_> = variables
        .iter()
        .filter_map(|one| one["name"].as_str())
        .collect();
    assert_eq!(variables, ["datasource", "instance", "interface"]);
    let panels = dashboard["panels"].as_array().unwrap();
    assert!(panels.len() >= 8);
    for panel in panels {
        let targets = panel["targets"].as_array().unwrap();
        assert!(!targets.is_empty(), "{panel}");
        for target in targets {
            let query = target["expr"].as_str().unwrap();
            for name in asked_for(query) {
                let chosen = query.contains(&format!(
                    "{name}{{instance=~\"$instance\", interface=~\"$interface\"}}"
                ));
                let of_all = PRM.iter().any(|family| family.name == name)
                    || [LIMITS.0, CLIENT_LIMITS.0].contains(&name);
                assert_eq!(chosen, !of_all, "{query}");
            }
        }
    }
}

/// Each alert of docs/prometheus-alerts.yml asks for metrics that exist, with labels that they have.
#[test]
fn the_alerts_ask_only_for_metrics_and_reasons_that_exist() {
    let path = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../../docs/prometheus-alerts.yml"
    );
    let text = std::fs::read_to_string(path).unwrap();
    let rules: Vec<_> = text.split("- alert: ").skip(1).collect();
    assert!(rules.len() >= 8);
    let families = SHARD.iter().chain(DEVICE).chain(PRM).chain(PORT);
    let families: BTreeMap<_, _> = families.map(|family| (family.name, family)).collect();
    for rule in rules {
        let field = |name: &str| {
            let mut lines = rule.lines().map(str::trim);
            lines
                .find_map(|line| line.strip_prefix(name))
                .unwrap_or_else(|| panic!("{name} of {rule}"))
        };
        for needed in ["for: ", "labels: ", "summary: ", "description: "] {
            assert!(!field(needed).is_empty(), "{rule}");
        }
        let query = field("expr: ");
        if query.starts_with("up{") {
            continue;
        }
        for name in asked_for(query) {
            // Each reason that is written out is one that is counted; `.*` stands for any.
            let (_, labels) = query.split_once(name).unwrap();
            let Some((label, rest)) = labels
                .strip_prefix('{')
                .and_then(|rest| rest.split_once('"'))
            else {
                continue;
            };
            let label = label.trim_end_matches(['=', '~']);
            let (values, _) = rest.split_once('"').unwrap();
            for value in values.split('|') {
                let wanted = format!("{label}=\"{}", value.trim_end_matches(".*"));
                let mut members = families[name].members.iter();
                assert!(
                    members.any(|(own, _)| own.contains(&wanted)),
                    "{query}: {value}"
                );
            }
        }
    }
}

/// The metrics that a query asks for: some, all of which exist, in the way of their kind.
#[track_caller]
fn asked_for(query: &str) -> Vec<&str> {
    let mut exist = BTreeSet::new();
    for (name, kind) in metric_names() {
        match kind {
            MetricKind::Histogram => {
                exist.extend(["_bucket", "_sum", "_count"].map(|part| format!("{name}{part}")));
            }
            _ => {
                exist.insert(name.to_owned());
            }
        }
    }
    let words = query.split(|c: char| !(c.is_ascii_alphanumeric() || c == '_'));
    let names: Vec<_> = words.filter(|word| word.starts_with("rnic_")).collect();
    assert!(!names.is_empty(), "{query}");
    for name in &names {
        assert!(exist.contains(*name), "{query} asks for {name}");
        let grows = name.ends_with("_total") || name.ends_with("_bucket");
        assert_eq!(query.contains("rate("), grows, "{query}");
    }
    names
}
