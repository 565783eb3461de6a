//! Lists of processors or queues, as the kernel writes them: `0,2-5`.

use std::str::FromStr;

/// More processors than any kernel has, and queues than any interface.
const NUMBERS_MAX: u32 = 1 << 16;

/// Numbers, in the order in which they were named.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct NumberList(pub(crate) Vec<u32>);

/// A text that is no such list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct NoList;

impl FromStr for NumberList {
    type Err = NoList;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let mut all = Vec::new();
        for part in text.split(',') {
            let (first, last) = part.split_once('-').unwrap_or((part, part));
            let number = |text: &str| text.trim().parse::<u32>().map_err(|_| NoList);
            let (first, last) = (number(first)?, number(last)?);
            if last < first || last >= NUMBERS_MAX {
                return Err(NoList);
            }
            all.extend(first..=last);
        }
        let mut each = all.clone();
        each.sort_unstable();
        each.dedup();
        match each.len() == all.len() {
            true => Ok(Self(all)),
            false => Err(NoList),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_has_numbers_and_ranges_in_the_order_given() {
        let list = |text: &str| text.parse::<NumberList>().map(|list| list.0);
        assert_eq!(list("3"), Ok(vec![3]));
        assert_eq!(list("4,0-2"), Ok(vec![4, 0, 1, 2]));
        for text in ["", "a", "1,", "2-1", "1-", "-1", "1,1", "0-2,1", "99999999"] {
            assert_eq!(list(text), Err(NoList), "{text}");
        }
    }
}
