//! RX queues that are the RNIC's alone, of an interface that has more.

use std::fmt;
use std::str::FromStr;

use crate::config::number_list::NumberList;

/// The RX queues of an interface that get the RNIC's frames, because flow rules of the operator's bring them there.
/// On others it opens no sockets, and leaves them as they are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DedicatedQueues(pub(crate) Vec<u32>);

impl DedicatedQueues {
    pub(crate) fn as_slice(&self) -> &[u32] {
        &self.0
    }
}

/// A text that names no queues.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("give RX queues, such as `6-7`, each once")]
pub struct ParseDedicatedQueuesError;

impl FromStr for DedicatedQueues {
    type Err = ParseDedicatedQueuesError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let list = text
            .parse::<NumberList>()
            .map_err(|_| ParseDedicatedQueuesError)?;
        Ok(Self(list.0))
    }
}

impl fmt::Display for DedicatedQueues {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let texts: Vec<_> = self.0.iter().map(u32::to_string).collect();
        f.write_str(&texts.join(","))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_written_as_it_is_read() {
        let queues: DedicatedQueues = "6-7,2".parse().unwrap();
        assert_eq!(queues, DedicatedQueues(vec![6, 7, 2]));
        assert_eq!(queues.to_string().parse(), Ok(queues));
        assert_eq!(
            "all".parse::<DedicatedQueues>(),
            Err(ParseDedicatedQueuesError)
        );
    }
}
