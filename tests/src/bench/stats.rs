//! What is said of the same figure in several rounds.

use serde_json::{Value, json};

/// Median, least and greatest.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Summary {
    /// The middle one, or the mean of the middle two.
    pub median: f64,
    pub min: f64,
    pub max: f64,
}

impl Summary {
    /// Of some figures; `None` of none.
    #[must_use]
    pub fn of(figures: impl IntoIterator<Item = f64>) -> Option<Self> {
        let mut all: Vec<f64> = figures.into_iter().collect();
        all.sort_by(f64::total_cmp);
        Some(Self {
            median: median(&all)?,
            min: *all.first()?,
            max: *all.last()?,
        })
    }

    /// Of `above` by `below`, pair by pair: what was measured in the same round. Rounds in which one
    /// of them is missing do not count.
    #[must_use]
    pub fn of_ratios(above: &[Option<f64>], below: &[Option<f64>]) -> Option<Self> {
        let pairs = above.iter().zip(below);
        Self::of(pairs.filter_map(|(above, below)| {
            let below = below.filter(|below| *below > 0.0)?;
            Some((*above)? / below)
        }))
    }

    #[must_use]
    pub fn json(&self) -> Value {
        json!({ "median": self.median, "min": self.min, "max": self.max })
    }
}

/// The median of `above` by that of `below`, of the rounds in which both were measured; `None` when
/// there is none, or when nothing can be divided by the second.
#[must_use]
pub fn ratio_of_medians(above: &[Option<f64>], below: &[Option<f64>]) -> Option<f64> {
    let pairs = above.iter().zip(below);
    let (above, below): (Vec<f64>, Vec<f64>) =
        pairs.filter_map(|(above, below)| above.zip(*below)).unzip();
    let below = Summary::of(below).filter(|all| all.median > 0.0)?;
    Some(Summary::of(above)?.median / below.median)
}

/// The middle one of sorted figures, or the mean of the middle two.
#[must_use]
pub fn median(sorted: &[f64]) -> Option<f64> {
    let middle = sorted.len() / 2;
    match sorted.len() {
        0 => None,
        length if length % 2 == 1 => Some(sorted[middle]),
        _ => Some(f64::midpoint(sorted[middle - 1], sorted[middle])),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_even_number_of_figures_has_its_median_between_two() {
        let of = |figures: &[f64]| Summary::of(figures.iter().copied());
        assert_eq!(of(&[]), None);
        let odd = of(&[3.0, 1.0, 9.0]).map(|all| (all.median, all.min, all.max));
        assert_eq!(odd, Some((3.0, 1.0, 9.0)));
        assert_eq!(of(&[4.0, 1.0, 9.0, 2.0]).map(|all| all.median), Some(3.0));
    }

    /// A machine that is half as fast in one round halves both, and no ratio of that round.
    #[test]
    fn ratios_are_of_the_same_round() {
        let above = [Some(10.0), Some(5.0), Some(12.0), None];
        let below = [Some(10.0), Some(5.0), Some(4.0), Some(1.0)];
        let ratios = Summary::of_ratios(&above, &below);
        let ratios = ratios.map(|all| (all.median, all.min, all.max));
        assert_eq!(ratios, Some((1.0, 1.0, 3.0)));
        assert_eq!(Summary::of_ratios(&above, &[Some(0.0); 4]), None);
        assert_eq!(Summary::of_ratios(&[None], &[Some(1.0)]), None);
        assert_eq!(ratio_of_medians(&above, &below), Some(2.0));
        assert_eq!(ratio_of_medians(&above, &[Some(0.0); 4]), None);
        assert_eq!(ratio_of_medians(&[None], &[Some(1.0)]), None);
    }
}
