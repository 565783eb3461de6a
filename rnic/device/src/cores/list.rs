//! Lists of processors, as the kernel writes them: `0,2-5`.

use std::str::FromStr;

/// More processors than any kernel has.
const PROCESSORS_MAX: u32 = 1 << 16;

/// Processors, in the order in which they were named.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Processors(pub(super) Vec<u32>);

/// A text that names no processors.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("give processors, such as `0,2-5`, each once, or `any`, or `auto`")]
pub struct NoProcessors;

impl FromStr for Processors {
    type Err = NoProcessors;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let mut all = Vec::new();
        for part in text.split(',') {
            let (first, last) = part.split_once('-').unwrap_or((part, part));
            let number = |text: &str| text.trim().parse::<u32>().map_err(|_| NoProcessors);
            let (first, last) = (number(first)?, number(last)?);
            if last < first || last >= PROCESSORS_MAX {
                return Err(NoProcessors);
            }
            all.extend(first..=last);
        }
        let mut each = all.clone();
        each.sort_unstable();
        each.dedup();
        match each.len() == all.len() {
            true => Ok(Self(all)),
            false => Err(NoProcessors),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_has_numbers_and_ranges_in_the_order_given() {
        let list = |text: &str| text.parse::<Processors>().map(|list| list.0);
        assert_eq!(list("3"), Ok(vec![3]));
        assert_eq!(list("4,0-2"), Ok(vec![4, 0, 1, 2]));
        for text in ["", "a", "1,", "2-1", "1-", "-1", "1,1", "0-2,1", "99999999"] {
            assert_eq!(list(text), Err(NoProcessors), "{text}");
        }
    }
}
