//! One association: its state (RFC 9260 section 4), and what moves it from one to the next.
//!
//! | file | what |
//! |---|---|
//! | `opening` | INIT, INIT ACK, COOKIE ECHO, COOKIE ACK (section 5.1) |
//! | `collision` | an INIT or a cookie when there is an association already (5.2) |
//! | `arrival` | tags and chunks of a packet (8.5, 6.10) |
//! | `data`, `sack` | what data brings, and what is said of ours (6.2, 6.2.1, 7.2) |
//! | `output` | packets (6.1, 6.10) |
//! | `timeout` | T1, T2, T3, T5 (6.3.3, 8.1) |
//! | `heartbeat` | probes of an idle path (8.3) |
//! | `probe` | the size of packets (7.3) |
//! | `ending` | SHUTDOWN and ABORT (9) |

mod arrival;
mod collision;
mod data;
mod ending;
mod heartbeat;
mod opening;
mod output;
mod paths;
mod pending;
mod probe;
mod sack;
mod timeout;

use std::net::IpAddr;
use std::num::NonZeroU64;

use userspace_net::Instant;

use crate::chunk::DATA_HEADER_LEN;
use crate::config::Config;
use crate::cookie::Tags;
use crate::effects::Env;
use crate::inbound::acks::Acks;
use crate::inbound::arrivals::Arrivals;
use crate::inbound::reassembly::Reassembly;
use crate::inbound::window::ReceiveWindow;
use crate::interface::{
    Agreed, AssocCounters, AssocId, Ends, Event, Info, Outgoing, PostError, Refused, Route, State,
};
use crate::outbound::Outbound;
use crate::packet::{HEADER_LEN, Header};
use crate::path::Path;
use crate::random::Random;
use crate::tlv::padded;
use crate::tsn::Tsn;
pub(crate) use arrival::Verdict;
pub(crate) use collision::{Answering, Collision};
use opening::Opening;
use pending::Pending;
use timeout::Timers;

/// An association. `B` is the caller's buffer of a message.
#[derive(Debug)]
pub(crate) struct Association<B> {
    id: AssocId,
    ends: Ends,
    state: State,
    /// The peer's is 0 as long as it is not known.
    tags: Tags,
    /// In cookies that are made while it lives (section 5.2.2).
    tie: NonZeroU64,
    local_tsn: Tsn,
    outbound_streams: u16,
    inbound_streams: u16,
    adaptation: Option<u32>,
    opening: Opening,
    /// At least one.
    paths: Vec<Path>,
    /// Consecutive errors (section 8.1).
    errors: u32,
    /// The paths by which the last packet, and the last data, came.
    heard_from: usize,
    data_from: usize,
    /// What the first link takes, where it was said.
    link_mtu: Option<usize>,
    /// The layer below does not know all addresses yet.
    has_new_addresses: bool,
    outbound: Outbound<Outgoing<B>>,
    inbound: Inbound,
    pending: Pending,
    timers: Timers,
    window_probe: WindowProbe,
    /// Times that T3 asked a closed window, since data was last sent into an open one.
    probes: u32,
    /// A SACK came since T3-rtx expired.
    is_answered: bool,
    /// When the peer's last packet came with our Verification Tag.
    heard_at: Instant,
    /// Packets with data that may still go in this burst.
    burst: u32,
    counters: AssocCounters,
}

/// A chunk that is sent although the peer has no room (rule A of section 6.1).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum WindowProbe {
    None,
    /// The timer has expired: one may go.
    Due,
    /// It is not acknowledged.
    Sent,
}

/// What is known of the peer's data.
#[derive(Debug)]
struct Inbound {
    arrivals: Arrivals,
    acks: Acks,
    reassembly: Reassembly,
    window: ReceiveWindow,
}

impl Inbound {
    fn new(first: Tsn, config: &Config, path: &Path) -> Self {
        let window = config.offer().window as usize;
        Self {
            arrivals: Arrivals::new(first),
            acks: Acks::new(),
            reassembly: Reassembly::new(config.fragment_bytes),
            window: ReceiveWindow::new(window, path.packet_max() - HEADER_LEN - DATA_HEADER_LEN),
        }
    }
}

/// What the peer says of itself when an association begins.
#[derive(Debug, Clone, Copy)]
struct Peer {
    tag: u32,
    initial_tsn: Tsn,
    window: u32,
    outbound_streams: u16,
    inbound_streams: u16,
    adaptation: Option<u32>,
}

/// An association's own numbers.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Seed {
    pub(crate) id: AssocId,
    pub(crate) route: Route,
    pub(crate) tag: u32,
    pub(crate) tsn: Tsn,
}

impl<B> Association<B> {
    /// Knows nothing of the peer.
    fn new(seed: Seed, config: &Config, random: &mut Random, now: Instant) -> Self {
        let Seed {
            id,
            route,
            tag,
            tsn,
        } = seed;
        let path = Path::new(config, route, true);
        Self {
            id,
            ends: route.ends,
            state: State::CookieWait,
            tags: Tags {
                local: tag,
                remote: 0,
            },
            tie: random.tie(),
            local_tsn: tsn,
            outbound_streams: 0,
            inbound_streams: 0,
            adaptation: None,
            opening: Opening::default(),
            outbound: Outbound::new(tsn, 0, config.send_chunks),
            // Replaced when the peer's TSN is known.
            inbound: Inbound::new(Tsn(0), config, &path),
            pending: Pending::new(path.packet_max()),
            paths: vec![path],
            errors: 0,
            heard_from: 0,
            data_from: 0,
            link_mtu: None,
            has_new_addresses: false,
            timers: Timers::default(),
            window_probe: WindowProbe::None,
            probes: 0,
            is_answered: false,
            heard_at: now,
            burst: config.max_burst,
            counters: AssocCounters::default(),
        }
    }

    fn adopt(&mut self, peer: &Peer, config: &Config) {
        self.tags.remote = peer.tag;
        self.outbound_streams = peer.outbound_streams;
        self.inbound_streams = peer.inbound_streams;
        self.adaptation = peer.adaptation;
        self.outbound.set_window(peer.window as usize);
        self.inbound = Inbound::new(peer.initial_tsn, config, &self.paths[0]);
    }

    pub(crate) const fn ends(&self) -> Ends {
        self.ends
    }

    /// How its packets get to the peer.
    pub(crate) fn route(&self) -> Route {
        self.paths[self.data_path()].route(self.ends)
    }

    /// The common header of its packets.
    fn header(&self, tag: u32) -> Header {
        Header {
            source: self.ends.local.port(),
            destination: self.ends.remote.port(),
            tag,
        }
    }

    pub(crate) const fn state(&self) -> State {
        self.state
    }

    pub(crate) const fn tags(&self) -> Tags {
        self.tags
    }

    pub(crate) const fn is_gone(&self) -> bool {
        matches!(self.state, State::Closed)
    }

    const fn agreed(&self) -> Agreed {
        Agreed {
            ends: self.ends,
            outbound_streams: self.outbound_streams,
            inbound_streams: self.inbound_streams,
            adaptation: self.adaptation,
        }
    }

    pub(crate) fn info(&self) -> Info {
        let path = &self.paths[self.data_path()];
        Info {
            agreed: self.agreed(),
            state: self.state,
            room: self.room(),
            flight: self.outbound.flight(),
            cwnd: path.congestion.cwnd(),
            ssthresh: path.congestion.ssthresh(),
            srtt: path.rto.srtt(),
            rttvar: path.rto.rttvar(),
            rto: path.rto.get(),
            errors: self.errors,
            mtu: path.mtu.plpmtu(),
            udp: path.udp,
            held: self.inbound.window.held(),
            heard_at: self.heard_at,
            counters: self.counters,
        }
    }

    /// Chunks that can be posted.
    pub(crate) fn room(&self) -> usize {
        self.outbound.room()
    }

    /// The longest message that fits a packet.
    pub(crate) fn message_max(&self) -> usize {
        self.packet_max() - HEADER_LEN - DATA_HEADER_LEN
    }

    /// The next timer; [`Association::wants_transmit`] says what does not wait for one.
    pub(crate) fn deadline(&self, now: Instant) -> Option<Instant> {
        let sack = self.inbound.acks.due().filter(|due| *due > now);
        let paths = self.paths.iter().filter_map(Path::deadline).min();
        [self.timers.next(), sack, paths]
            .into_iter()
            .flatten()
            .min()
    }

    /// The layer above needs so many bytes no more.
    pub(crate) fn consumed(&mut self, now: Instant, bytes: usize) {
        if self.inbound.window.consumed(bytes) && self.receives_data() {
            self.inbound.acks.at_once(now);
        }
    }

    /// Packets to an address go another way from now on.
    pub(crate) fn path_moved(&mut self, remote: IpAddr) {
        if let Some(at) = self.path_to(remote) {
            self.paths[at].moved();
        }
    }

    fn event(&self, env: &mut Env<'_, B>, event: Event) {
        env.effects.events.push_back((self.id, event));
    }
}

impl<B: AsRef<[u8]>> Association<B> {
    /// Takes a message to send.
    pub(crate) fn post(
        &mut self,
        env: &Env<'_, B>,
        message: Outgoing<B>,
    ) -> Result<(), Refused<B>> {
        let len = message.buffer.as_ref().len();
        if let Some(error) = self.refusal(message.stream, len) {
            let buffer = message.buffer;
            return Err(Refused { buffer, error });
        }
        let posted = self.outbound.post(message, padded(DATA_HEADER_LEN + len));
        posted.map_err(|message| Refused {
            buffer: message.buffer,
            error: PostError::QueueFull,
        })?;
        self.burst = env.config.max_burst;
        self.arm_t3(env);
        Ok(())
    }

    /// Streams to send on. Before the peer has agreed to more there is one.
    const fn streams(&self) -> u16 {
        match self.state {
            State::CookieWait | State::CookieEchoed => 1,
            _ => self.outbound_streams,
        }
    }

    fn refusal(&self, stream: u16, len: usize) -> Option<PostError> {
        match self.state {
            State::CookieWait | State::CookieEchoed | State::Established => {}
            _ => return Some(PostError::ShuttingDown),
        }
        let (streams, max) = (self.streams(), self.message_max());
        if stream >= streams {
            Some(PostError::NoStream { stream, streams })
        } else if len == 0 {
            Some(PostError::Empty)
        } else if len > max {
            Some(PostError::TooLong { len, max })
        } else {
            None
        }
    }
}
