//! One engine: a stack, its frames, and whose connection is whose.

use std::collections::{HashMap, HashSet};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::time::Duration;

use userspace_net::{FourTuple, Instant};
use userspace_tcp::{ConnId, ConnOptions, Stack};

use super::scenario::EnginePlan;
use crate::harness::{Buf, Buffers};

/// A side of a flow.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Role {
    pub flow: usize,
    pub side: usize,
}

pub struct Engine {
    pub stack: Stack<Buf>,
    pub buffers: Buffers,
    pub burst: usize,
    grain: u64,
    /// All that it ever had.
    pub roles: Vec<Role>,
    pub by_conn: HashMap<ConnId, Role>,
    /// Who gets the next connection that comes in.
    pub expected: HashMap<FourTuple, Role>,
    /// Connections that old packets have brought to life.
    pub ghosts: HashSet<ConnId>,
}

impl Engine {
    pub fn new(index: usize, plan: &EnginePlan) -> Self {
        let secret = [index as u8 + 1; 16];
        Self {
            stack: Stack::new(plan.config.clone(), secret, Instant::ZERO),
            buffers: Buffers::default(),
            burst: plan.burst,
            grain: plan.grain.as_nanos() as u64,
            roles: Vec::new(),
            by_conn: HashMap::new(),
            expected: HashMap::new(),
            ghosts: HashSet::new(),
        }
    }

    pub fn addr(index: usize, v6: bool) -> IpAddr {
        let last = 1 + index as u16;
        if v6 {
            Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, last).into()
        } else {
            Ipv4Addr::new(198, 18, 0, last as u8).into()
        }
    }

    /// Of connections of one family.
    pub fn options(&self, v6: bool) -> ConnOptions {
        let mss = self.stack.config().mss;
        ConnOptions {
            mss: if v6 { mss - 20 } else { mss },
        }
    }

    /// When it looks at what comes at `at`.
    pub fn looks_at(&self, at: Instant) -> Instant {
        let since = at.saturating_duration_since(Instant::ZERO).as_nanos() as u64;
        match self.grain {
            0 => at,
            grain => Instant::ZERO + Duration::from_nanos(since.next_multiple_of(grain)),
        }
    }

    pub fn fetch_released(&mut self) {
        while let Some(buf) = self.stack.poll_released() {
            self.buffers.free(buf);
        }
    }
}
