//! Packets of no association, where no steering program bounds them: so many a second are looked at, and the rest of
//! a flood is dropped before SCTP. INITs have a limit of their own, for they are what a peer begins with.

use rnic_net::SCTP_HEADER;
use userspace_net::Instant;
use userspace_net::limit::RateLimit;

use super::super::config::{Rate, UnknownFlowLimits};
use crate::counters::ShardCounters;

/// The type of an INIT chunk (RFC 9260 section 3.3.2).
const INIT: u8 = 1;

/// What is let through.
#[derive(Debug)]
pub(in crate::shard) struct UnknownFlows {
    inits: Option<RateLimit>,
    others: Option<RateLimit>,
}

impl UnknownFlows {
    pub fn new(limits: UnknownFlowLimits) -> Self {
        let limit = |rate: Rate| {
            let Rate { per_second, burst } = rate;
            (per_second > 0).then(|| RateLimit::with_burst(per_second, burst))
        };
        Self {
            inits: limit(limits.inits),
            others: limit(limits.others),
        }
    }

    /// Whether an SCTP packet of no association is dropped, which is counted.
    pub fn drop(&mut self, now: Instant, packet: &[u8], counters: &mut ShardCounters) -> bool {
        let (limit, dropped) = match packet.get(SCTP_HEADER) {
            Some(&INIT) => (&mut self.inits, &mut counters.rx_init_rate),
            _ => (&mut self.others, &mut counters.rx_unknown_flow_rate),
        };
        let permitted = limit.as_mut().is_none_or(|limit| limit.permit(now));
        *dropped += u64::from(!permitted);
        !permitted
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn a_flood_of_one_kind_leaves_the_other_its_share() {
        let of = |per_second, burst| Rate { per_second, burst };
        let mut flows = UnknownFlows::new(UnknownFlowLimits {
            inits: of(10, 20),
            others: of(100, 100),
        });
        let mut counters = ShardCounters::default();
        let (mut init, other) = ([0; 32], [0; 12]);
        init[SCTP_HEADER] = INIT;
        let mut now = Instant::ZERO + Duration::from_secs(60);
        let through = |flows: &mut UnknownFlows, counters: &mut _, now, packet: &[u8]| {
            let all = (0..1000).filter(|_| !flows.drop(now, packet, counters));
            all.count()
        };
        assert_eq!(through(&mut flows, &mut counters, now, &init), 20);
        assert_eq!(through(&mut flows, &mut counters, now, &other), 100);
        assert_eq!(counters.rx_init_rate, 980);
        assert_eq!(counters.rx_unknown_flow_rate, 900);
        now += Duration::from_secs(1);
        assert_eq!(through(&mut flows, &mut counters, now, &init), 10);
        let mut none = UnknownFlows::new(UnknownFlowLimits::default());
        assert_eq!(through(&mut none, &mut counters, now, &init), 1000);
    }
}
