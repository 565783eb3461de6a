//! Ways back to peers without a connection, for resets, SYN cookies and what SCTP answers to unknown flows. A
//! connection that ends leaves its own: its reset may still have to go.

use std::collections::{HashMap, VecDeque};

use rnic_net::Path;
use userspace_net::FourTuple;

use crate::command::ForbiddenBy;

/// Most that strangers cause between two transmissions: so many of their answers TCP and SCTP keep.
const STRANGERS: usize = 256;

/// How frames get back to a peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::shard) enum ReturnPath {
    /// By this path and port.
    Open(Path, usize),
    /// Not at all: the host forbids it.
    Forbidden(ForbiddenBy),
}

/// As many as may be needed at once: one for each connection that may end, and [`STRANGERS`].
#[derive(Debug)]
pub(in crate::shard) struct ReturnPaths {
    by_flow: HashMap<FourTuple, ReturnPath>,
    /// The oldest first.
    order: VecDeque<FourTuple>,
    most: usize,
}

impl ReturnPaths {
    /// Where there may be so many connections. There is memory for few of them, until many end at once.
    pub fn new(connections: usize) -> Self {
        Self {
            by_flow: HashMap::with_capacity(2 * STRANGERS),
            order: VecDeque::with_capacity(2 * STRANGERS),
            most: connections.saturating_add(STRANGERS),
        }
    }

    /// Frames to this flow's remote end go by this way. The oldest way is forgotten if need be.
    pub fn remember(&mut self, tuple: FourTuple, way: ReturnPath) {
        if self.by_flow.insert(tuple, way).is_some() {
            return;
        }
        self.order.push_back(tuple);
        if self.order.len() > self.most
            && let Some(oldest) = self.order.pop_front()
        {
            self.by_flow.remove(&oldest);
        }
    }

    /// Closes the ways that this forbids.
    pub fn forbid(&mut self, forbids: impl Fn(&FourTuple, usize) -> Option<ForbiddenBy>) {
        for (tuple, way) in &mut self.by_flow {
            if let ReturnPath::Open(_, port) = way
                && let Some(by) = forbids(tuple, *port)
            {
                *way = ReturnPath::Forbidden(by);
            }
        }
    }

    /// How they go, if that is remembered.
    pub fn find(&self, tuple: &FourTuple) -> Option<ReturnPath> {
        self.by_flow.get(tuple).copied()
    }
}

#[cfg(test)]
mod tests {
    use rnic_net::PathDefaults;
    use userspace_net::Endpoint;

    use super::*;

    #[test]
    fn the_newest_way_of_each_flow_is_kept_and_the_oldest_flow_is_forgotten() {
        let addr = |text: &str| text.parse().unwrap();
        let flow = |port| {
            let (local, remote) = (addr("198.18.0.1"), addr("198.18.0.2"));
            FourTuple::new(Endpoint::new(local, 1), Endpoint::new(remote, port))
        };
        let path = |mtu| Path {
            src_mac: [2; 6],
            dst_mac: [4; 6],
            vlan: None,
            mtu: PathDefaults::new(mtu).mtu,
            hop_limit: 64,
        };
        let mut ways = ReturnPaths::new(10);
        let most = 10 + STRANGERS as u16;
        for port in 1..=most {
            ways.remember(flow(port), ReturnPath::Open(path(1500), 0));
        }
        ways.remember(flow(1), ReturnPath::Open(path(9000), 1));
        assert_eq!(ways.find(&flow(1)), Some(ReturnPath::Open(path(9000), 1)));
        ways.remember(flow(most + 1), ReturnPath::Open(path(1500), 0));
        assert_eq!(ways.find(&flow(1)), None);
        assert!(ways.find(&flow(2)).is_some());
        assert_eq!(ways.by_flow.len(), usize::from(most));
    }
}
