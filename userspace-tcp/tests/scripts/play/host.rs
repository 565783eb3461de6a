//! What a script is played against.

use std::fmt::Debug;
use std::hash::Hash;
use std::time::Duration;

use userspace_net::{Endpoint, FourTuple, Instant};
use userspace_tcp::{Event, IcmpError, KeepAlive, Payload, Received, SeqNum};

use crate::look::Seen;
use crate::syntax::Script;
use crate::wire::Wire;

/// Key of initial sequence numbers: scripts are repeatable.
pub const SECRET: [u8; 16] = *b"0123456789abcdef";

/// The host whose TCP is tried. A refusal is the word that scripts have for it.
pub trait Host: Sized {
    type Conn: Copy + Eq + Hash + Debug;

    /// What TCP tells the layer above can be seen: events, bytes and answers. Without that only segments are held
    /// against the script, and lines about the rest are passed over.
    const TELLS: bool;

    fn new(script: &Script, start: Instant) -> Self;

    fn next_deadline(&mut self) -> Option<Instant>;

    fn advance(&mut self, now: Instant);

    /// A segment arrives. `None`: it is none.
    fn receive(&mut self, now: Instant, ends: FourTuple, wire: &Wire) -> Option<Taken<Self::Conn>>;

    /// The next segment that leaves now.
    fn next_segment(&mut self, now: Instant) -> Option<Leaving<Self::Conn>>;

    /// The link gives back what it was given.
    fn transmitted(&mut self, conn: Self::Conn, payload: Payload<u32>) -> bool;

    /// A buffer is given back, of what will not be sent any more.
    fn next_released(&mut self) -> bool;

    fn next_event(&mut self) -> Option<(Self::Conn, Event)>;

    fn connect(
        &mut self,
        now: Instant,
        ends: FourTuple,
        mss: u16,
    ) -> Result<Self::Conn, &'static str>;

    fn listen(&mut self, now: Instant, local: Endpoint, backlog: usize) -> Result<(), String>;

    fn unlisten(&mut self, now: Instant, local: Endpoint) -> bool;

    fn send(
        &mut self,
        now: Instant,
        conn: Self::Conn,
        buf: u32,
        len: u32,
    ) -> Result<(), &'static str>;

    fn close(&mut self, now: Instant, conn: Self::Conn) -> bool;

    fn abort(&mut self, now: Instant, conn: Self::Conn) -> bool;

    fn consumed(&mut self, conn: Self::Conn, to: u64);

    fn set_keepalive(&mut self, now: Instant, conn: Self::Conn, wanted: Option<KeepAlive>) -> bool;

    fn set_user_timeout(&mut self, now: Instant, conn: Self::Conn, timeout: Duration) -> bool;

    fn icmp(&mut self, now: Instant, ends: FourTuple, seq: SeqNum, error: IcmpError) -> bool;

    /// The next SYNs begin another connection between these ends.
    fn incarnation(&mut self, _ends: FourTuple) {}

    /// The script has no further step: a host that held something back lets it leave.
    fn script_is_over(&mut self) {}

    /// What `? name` asks for.
    fn look(&self, conn: Option<Self::Conn>, name: &str) -> Seen;
}

/// A segment that arrived, taken.
pub struct Taken<C> {
    pub conn: Option<C>,
    pub received: Received,
}

pub struct Leaving<C> {
    pub ends: FourTuple,
    pub wire: Wire,
    /// What the link has to give back.
    pub payload: Option<(C, Payload<u32>)>,
}
