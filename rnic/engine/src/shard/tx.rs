//! The transmit path: work of queue pairs becomes segments, and those become frames.
//!
//! Clients and their connections take turns ([`drr_scheduler`]), within the window of all connections to a
//! peer ([`macroflow`]). A connection produces one quantum at a time ([`produce`], [`quantum`]): as many
//! segments as windows, frames and the link allow. If no other connection has data to send, it produces at
//! once ([`immediate`]).
//!
//! TCP gives what may leave ([`transmit`]), in bursts that share one header ([`header_cache`]), to the ports
//! ([`link`]), or to others in their place ([`exits`]). A segment without a connection finds its way too ([`return_paths`]). SCTP gives [`packets`]. What a window does not take whole is [`cut`]. What became too large for its path is sent as [`fragments`].

mod cut;
pub(super) mod drr_scheduler;
mod exits;
pub(super) mod fragments;
pub(super) mod header_cache;
pub(super) mod immediate;
pub(super) mod link;
pub(super) mod macroflow;
mod packets;
mod prefetch;
pub(super) mod produce;
pub(super) mod quantum;
pub(super) mod return_paths;
mod transmit;

use rnic_net::{ETHERNET_HEADER, IPV4_HEADER, Identification};
use rnic_xsk::FramePool;

use super::datapath::Datapath;
use drr_scheduler::DrrScheduler;
use header_cache::Headers;
use link::Link;
use macroflow::Macroflows;

/// One wide frame in so many is not for sending.
const WIDE_RESERVE: usize = 16;

/// What the transmit path keeps from one poll to the next.
#[derive(Debug)]
pub(super) struct Tx {
    /// Connections whose queue pair may have something to send.
    pub scheduler: DrrScheduler,
    /// What connections to the same peer may have under way together.
    pub macroflows: Macroflows,
    /// Producing stopped for want of a free frame or of room on the link: only a received frame, the
    /// link or a timer brings one back.
    pub starved: bool,
    pub link: Link,
    /// Of the connection whose burst was the last; none before.
    headers: Option<Headers>,
    /// Bytes of the headers in front of SCTP's last packet.
    packet_headers: usize,
    /// Of packets that are sent in fragments.
    identification: Identification,
    reserve: Reserve,
}

/// Free frames that are not for sending: without any to receive into, nothing would ever be
/// acknowledged.
#[derive(Debug)]
struct Reserve {
    /// Frames of one chunk.
    single: usize,
    /// Wide frames: packets are put together from fragments in them.
    wide: usize,
}

impl Tx {
    pub fn new<P>(dp: &Datapath<P>) -> Self {
        let (config, umem, pool) = (&dp.config, &dp.frames.umem, &dp.frames.pool);
        let limits = config.limits;
        let wide = match umem.chunk().chunks() {
            1 => 0,
            _ => pool.available_for(umem.frame_capacity()),
        };
        Self {
            scheduler: DrrScheduler::new(limits.clients, limits.all_connections()),
            macroflows: Macroflows::new(limits.connections, umem.frames()),
            starved: false,
            link: Link::new(umem.frames(), dp.ports.len(), limits.all_connections()),
            headers: None,
            packet_headers: ETHERNET_HEADER + IPV4_HEADER,
            identification: Identification::new(config.secret),
            reserve: Reserve {
                single: config.receive_reserve,
                wide: wide / WIDE_RESERVE,
            },
        }
    }

    /// No connection waits for its turn, or for others to the same peer.
    pub fn is_idle(&self) -> bool {
        self.scheduler.is_idle() && self.macroflows.is_idle()
    }
}

impl Reserve {
    /// How many free frames, of the kind that so many bytes take, sending may use.
    #[inline]
    fn spare(&self, pool: &FramePool, bytes: usize) -> usize {
        let reserve = match pool.is_wide(bytes) {
            true => self.wide,
            false => self.single,
        };
        pool.available_for(bytes).saturating_sub(reserve)
    }
}
