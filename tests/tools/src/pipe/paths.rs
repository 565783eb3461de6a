//! How frames get back to whoever sent us one.

use std::collections::VecDeque;

use rnic_net::Path;
use userspace_net::FourTuple;

/// Ways back that are remembered. More than the frames of one batch.
const MOST: usize = 128;

/// A path and the port, by its number, that leads to it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Way {
    pub(super) path: Path,
    pub(super) port: usize,
}

/// The way of the one connection, and those of the latest strangers: who has not completed a
/// handshake, or is to be told that there is no connection.
#[derive(Debug, Default)]
pub(super) struct Paths {
    ours: Option<(FourTuple, Way)>,
    strangers: VecDeque<(FourTuple, Way)>,
}

impl Paths {
    pub(super) fn set(&mut self, tuple: FourTuple, way: Way) {
        self.ours = Some((tuple, way));
    }

    /// Frames to the connection's peer have to go another way from now on. The port stays.
    pub(super) fn moved(&mut self, path: Path) {
        if let Some((_, known)) = &mut self.ours {
            known.path = Path {
                vlan: known.path.vlan,
                ..path
            };
        }
    }

    /// A frame came this way. The connection's path stays what it was, but answers go out where
    /// its frames come in.
    pub(super) fn came(&mut self, tuple: FourTuple, way: Way) {
        match &mut self.ours {
            Some((ours, known)) if *ours == tuple => known.port = way.port,
            _ => {
                if self.strangers.len() == MOST {
                    self.strangers.pop_back();
                }
                self.strangers.push_front((tuple, way));
            }
        }
    }

    /// The way to the remote end of `tuple`.
    pub(super) fn way(&self, tuple: &FourTuple) -> Option<Way> {
        let known = self.ours.iter().chain(&self.strangers);
        known
            .filter(|(other, _)| other == tuple)
            .map(|(_, way)| *way)
            .next()
    }
}

#[cfg(test)]
mod tests;
