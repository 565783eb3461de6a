use std::collections::{BTreeMap, BTreeSet};

use super::*;
use crate::Runtime;
use crate::requests::tests::Bench;

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

#[test]
fn every_counter_of_the_device_is_declared_once() {
    let bench = Bench::new(Runtime::Caller);
    let members = all_families().flat_map(|family| family.members);
    let mut declared = BTreeSet::new();
    for (_, counter) in members {
        assert!(declared.insert(*counter), "{counter} comes twice");
    }
    // Those of the ports, one that others tell, and those of a head.
    let elsewhere = ["port0_", "bytes_parked", "steering_", "held_", "refused_"];
    for (counter, _) in bench.device.counters().unwrap() {
        let is_known =
            declared.remove(&*counter) || elsewhere.iter().any(|start| counter.starts_with(start));
        assert!(is_known, "{counter} is not declared");
    }
    let ports = PORT.iter().flat_map(|family| family.members);
    for (_, counter) in ports {
        declared.remove(counter);
    }
    // Without a capture there are none of its counters.
    let left: Vec<_> = declared.into_iter().collect();
    assert_eq!(left, ["capture_dropped", "capture_frames"]);
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

/// docs/operations/metrics.md has every metric as it is declared. `RNIC_WRITE_DOCS=1` writes it.
#[test]
fn the_table_of_all_metrics_is_the_declarations() {
    let path = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../../docs/operations/metrics.md"
    );
    let found = std::fs::read_to_string(path).unwrap();
    let (start, end) = (
        "| metric | kind | meaning | labels |\n|---|---|---|---|\n",
        "\n\n",
    );
    let (before, rest) = found.split_once(start).unwrap();
    let (_, after) = rest.split_once(end).unwrap();
    let rows: Vec<_> = all_families().map(row).collect();
    let page = [before, start, &rows.join("\n"), end, after].concat();
    if std::env::var_os("RNIC_WRITE_DOCS").is_some() {
        std::fs::write(path, &page).unwrap();
    }
    assert!(
        found == page,
        "{path} differs from the declarations: run this test with RNIC_WRITE_DOCS=1"
    );
}

fn row(family: &Family) -> String {
    let members = family.members.iter().flat_map(|(labels, _)| *labels);
    let of_members = members.map(|(label, _)| *label);
    let mut labels: Vec<_> = of_members.chain(family.labels.iter().copied()).collect();
    labels.sort_unstable();
    labels.dedup();
    let labels: Vec<_> = labels.iter().map(|label| format!("`{label}`")).collect();
    let (name, kind, help) = (family.name, family.kind().name(), family.help);
    format!("| `{name}` | {kind} | {help} | {} |", labels.join(", "))
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
                    || [LIMITS.name, HELD.name, CLIENT_LIMITS.name].contains(&name);
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
    let families: BTreeMap<_, _> = all_families().map(|it| (it.name, it)).collect();
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
                let wanted = value.trim_end_matches(".*");
                let mut members = families[name].members.iter().flat_map(|(own, _)| *own);
                assert!(
                    members.any(|(own, is)| *own == label && is.starts_with(wanted)),
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
