//! What all cases did in all rounds.

use serde_json::{Map, Value, json};

use super::stats::Summary;
use super::{Case, Figures};

#[derive(Clone, Debug)]
pub struct Row {
    pub case: Case,
    /// Why it did not run at all.
    pub unsupported: Option<String>,
    /// What each round gave; nothing where it failed.
    pub rounds: Vec<Option<Figures>>,
    /// What it said when it failed, and in which round, from 1.
    pub failures: Vec<(u32, String)>,
}

/// All of them, in the order in which they run.
#[derive(Clone, Debug, Default)]
pub struct Results {
    pub rows: Vec<Row>,
}

impl Results {
    /// Of cases that have not run yet.
    #[must_use]
    pub fn new(cases: impl IntoIterator<Item = (Case, Option<String>)>) -> Self {
        let row = |(case, unsupported)| Row {
            case,
            unsupported,
            rounds: Vec::new(),
            failures: Vec::new(),
        };
        Self {
            rows: cases.into_iter().map(row).collect(),
        }
    }

    #[must_use]
    pub fn row(&self, name: &str) -> Option<&Row> {
        self.rows.iter().find(|row| row.case.name == name)
    }

    /// Whether anything failed.
    #[must_use]
    pub fn failed(&self) -> bool {
        self.rows.iter().any(|row| !row.failures.is_empty())
    }

    #[must_use]
    pub fn json(&self) -> Value {
        self.rows.iter().map(Row::json).collect()
    }
}

impl Row {
    pub fn add(&mut self, outcome: Result<Figures, String>) {
        match outcome {
            Ok(figures) => self.rounds.push(Some(figures)),
            Err(error) => {
                self.rounds.push(None);
                self.failures.push((self.rounds.len() as u32, error));
            }
        }
    }

    #[must_use]
    pub fn series(&self, figure: &str) -> Vec<Option<f64>> {
        let of = |round: &Option<Figures>| round.as_ref()?.get(figure).copied();
        self.rounds.iter().map(of).collect()
    }

    /// A figure over all rounds.
    #[must_use]
    pub fn summary(&self, figure: &str) -> Option<Summary> {
        Summary::of(self.series(figure).into_iter().flatten())
    }

    /// Why there is no figure, for people.
    #[must_use]
    pub fn excuse(&self) -> String {
        let name = &self.case.name;
        match (&self.unsupported, self.failures.is_empty()) {
            (Some(reason), _) => format!("{name}: {reason}"),
            (None, true) => format!("{name} did not run"),
            (None, false) => format!("{name} failed"),
        }
    }

    fn json(&self) -> Value {
        let mut names: Vec<&str> = Vec::new();
        for figures in self.rounds.iter().flatten() {
            names.extend(
                figures
                    .keys()
                    .filter(|name| !names.contains(name))
                    .copied()
                    .collect::<Vec<_>>(),
            );
        }
        let figure = |name: &str| {
            let mut value = self.summary(name).map_or(json!({}), |all| all.json());
            value["rounds"] = json!(self.series(name));
            (name.to_owned(), value)
        };
        let figures: Map<String, Value> = names.into_iter().map(figure).collect();
        let failures = self.failures.iter();
        let failures: Vec<Value> = failures
            .map(|(round, error)| json!({ "round": round, "error": error }))
            .collect();
        json!({
            "name": self.case.name,
            "figures": figures,
            "not_supported": self.unsupported,
            "failures": failures,
        })
    }
}

#[cfg(test)]
pub(super) mod testing {
    use super::super::raw::Load;
    use super::super::{Work, matrix};
    use super::*;

    /// Results of cases of any kind under these names, with one figure in each round.
    pub fn results(rows: &[(&str, &'static str, &[f64])]) -> Results {
        let mut results = Results::default();
        for (name, figure, rounds) in rows {
            let known = matrix::full().into_iter().find(|one| one.name == *name);
            let case = known.unwrap_or_else(|| Case {
                name: (*name).to_owned(),
                place: None,
                work: Work::RawRate(Load::Nothing),
            });
            let mut row = Row {
                case,
                unsupported: None,
                rounds: Vec::new(),
                failures: Vec::new(),
            };
            for value in *rounds {
                row.add(Ok(Figures::from([(*figure, *value)])));
            }
            results.rows.push(row);
        }
        results
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_round_that_failed_keeps_its_place() {
        let mut results = testing::results(&[("raw", "x", &[1.0])]);
        results.rows[0].add(Err("broken".into()));
        results.rows[0].add(Ok(Figures::from([("x", 3.0)])));
        assert_eq!(results.rows[0].series("x"), [Some(1.0), None, Some(3.0)]);
        assert!(results.failed());
        let json = &results.json()[0];
        assert_eq!(json["figures"]["x"]["median"], 2.0);
        assert_eq!(json["figures"]["x"]["rounds"], json!([1.0, null, 3.0]));
        assert_eq!(json["failures"][0]["round"], 2);
    }
}
