//! The State Cookie (RFC 9260 sections 5.1.3 to 5.1.5): all that a listener must know of an association that was
//! asked for, kept by the peer until it comes back. So an INIT costs the listener no memory.
//!
//! A cookie is ours when its MAC is: SipHash-2-4 of 128 bits over everything else in it, under a secret that never
//! leaves this host. It holds both ends, so it is good for no other peer.

#[cfg(test)]
mod tests;

use std::hash::Hasher;
use std::net::{IpAddr, SocketAddr};
use std::num::NonZeroU64;
use std::time::Duration;

use siphasher::sip128::{Hasher128, SipHasher24};

use userspace_net::Instant;

use crate::addresses::{OTHERS_MAX, Others};
use crate::interface::Ends;
use crate::tsn::Tsn;

/// Bytes of a cookie.
pub const LEN: usize = BODY_LEN + MAC_LEN;

const BODY_LEN: usize = 136;
const MAC_LEN: usize = 16;

/// In place of tie tags, when there was no association at the INIT (section 5.2.2).
const NO_TIE: u64 = 0;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct State {
    pub made: Instant,
    /// How long it is good, in whole milliseconds.
    pub lifespan: Duration,
    /// Our address and port.
    pub local: SocketAddr,
    /// The peer's address, from which its INIT came, and port.
    pub remote: SocketAddr,
    /// Its further addresses.
    pub others: Others,
    /// Our Verification Tag, and the one that the peer gave itself.
    pub tags: Tags,
    /// The tie tags (section 1.3): 64 random bits that link it to the association that there was when the INIT
    /// came, and reveal no Verification Tag of that one.
    pub tie: Option<NonZeroU64>,
    /// The TSN of our first DATA chunk.
    pub local_tsn: Tsn,
    /// The TSN of the peer's first.
    pub remote_tsn: Tsn,
    /// The peer's receiver window, in bytes.
    pub window: u32,
    /// Streams that we send on.
    pub outbound_streams: u16,
    /// Streams that the peer sends on.
    pub inbound_streams: u16,
    /// The peer's Adaptation Layer Indication.
    pub adaptation: Option<u32>,
}

/// The Verification Tags of both sides; none is 0.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Tags {
    /// Ours: in what the peer sends.
    pub local: u32,
    /// The peer's: in what we send.
    pub remote: u32,
}

/// A cookie of ours that came back.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Returned {
    pub state: State,
    /// By how much it came too late. The peer is then notified by an ERROR, unless there is an association with its
    /// tags (section 5.1.5).
    pub late: Option<Duration>,
}

/// A cookie that is not ours, or not for these two ends. The packet is dropped without an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the State Cookie is not one that was given to this peer")]
pub struct ForeignCookie;

/// How long cookies are made by one key (section 5.1.3).
const KEY_LIFE: Duration = Duration::from_secs(3600);

/// What makes cookies ours. Stacks that share it, and the clock, take each other's cookies.
///
/// Each hour of the clock has a key of its own. A cookie names its hour by its time, so nothing has to be kept or
/// renewed, and stacks agree on the key by the clock alone.
#[derive(Debug, Clone)]
pub struct Secret {
    root: [u8; 16],
}

impl Secret {
    /// A secret that nobody else knows: random, and another one after each start.
    pub const fn new(root: [u8; 16]) -> Self {
        Self { root }
    }

    /// The key of the hour in which a cookie was made.
    fn key(&self, hour: u64) -> [u8; 16] {
        let mut hasher = SipHasher24::new_with_key(&self.root);
        hasher.write(b"sctp cookie key");
        hasher.write_u64(hour);
        hasher.finish128().as_bytes()
    }

    /// The cookie for an INIT.
    pub fn bake(&self, state: &State) -> [u8; LEN] {
        let mut cookie = [0; LEN];
        let (body, mac) = cookie.split_at_mut(BODY_LEN);
        state.write(body);
        mac.copy_from_slice(&mac_of(&self.key(hour(state.made)), body));
        cookie
    }

    /// What a cookie keeps that comes back `now` from `remote`, an address of its peer, to `local`. One of an hour
    /// before the last is taken no more.
    ///
    /// # Errors
    /// When it is not ours, or is of other ends.
    pub fn check(
        &self,
        cookie: &[u8],
        now: Instant,
        local: SocketAddr,
        remote: SocketAddr,
    ) -> Result<Returned, ForeignCookie> {
        let (body, mac) = cookie.split_at_checked(BODY_LEN).ok_or(ForeignCookie)?;
        let state = State::read(body).ok_or(ForeignCookie)?;
        let made = hour(state.made);
        // The clock of a stack that shares the secret may be a moment ahead.
        if made.abs_diff(hour(now)) > 1 || !same(mac, &mac_of(&self.key(made), body)) {
            return Err(ForeignCookie);
        }
        let is_known = remote.ip() == state.remote.ip() || state.others.contains(remote.ip());
        if state.local != local || remote.port() != state.remote.port() || !is_known {
            return Err(ForeignCookie);
        }
        let age = now.saturating_duration_since(state.made);
        let late = age
            .checked_sub(state.lifespan)
            .filter(|late| !late.is_zero());
        Ok(Returned { state, late })
    }
}

const fn hour(at: Instant) -> u64 {
    at.as_nanos() / KEY_LIFE.as_nanos() as u64
}

fn mac_of(key: &[u8; 16], body: &[u8]) -> [u8; MAC_LEN] {
    let mut hasher = SipHasher24::new_with_key(key);
    hasher.write(b"sctp state cookie");
    hasher.write(body);
    hasher.finish128().as_bytes()
}

/// Whether both are the same, in a time that does not tell where they differ.
fn same(found: &[u8], computed: &[u8; MAC_LEN]) -> bool {
    let differing = found
        .iter()
        .zip(computed)
        .fold(0, |all, (a, b)| all | (a ^ b));
    found.len() == MAC_LEN && differing == 0
}

impl State {
    fn write(&self, body: &mut [u8]) {
        let mut fields = Fields { bytes: body, at: 0 };
        // Some 584 years of nanoseconds.
        fields.put(&self.made.as_nanos().to_be_bytes());
        fields.put(&(self.lifespan.as_millis() as u32).to_be_bytes());
        fields.put(&self.tags.local.to_be_bytes());
        fields.put(&self.tags.remote.to_be_bytes());
        fields.put(&self.tie.map_or(NO_TIE, NonZeroU64::get).to_be_bytes());
        for number in [self.local_tsn.0, self.remote_tsn.0, self.window] {
            fields.put(&number.to_be_bytes());
        }
        fields.put(&self.outbound_streams.to_be_bytes());
        fields.put(&self.inbound_streams.to_be_bytes());
        let families = [self.local, self.remote].map(|end| u8::from(end.is_ipv6()));
        fields.put(&[families[0] << 1 | families[1] << 2 | u8::from(self.adaptation.is_some())]);
        fields.put(&self.adaptation.unwrap_or_default().to_be_bytes());
        for end in [self.local, self.remote] {
            fields.put(&octets(end.ip()));
            fields.put(&end.port().to_be_bytes());
        }
        for other in self.others.iter() {
            fields.put(&octets(other));
        }
        // The rest is padding.
        debug_assert!(fields.at <= BODY_LEN);
    }

    /// Of bytes whose MAC is still to be checked.
    fn read(body: &[u8]) -> Option<Self> {
        let mut fields = Reader { rest: body };
        let made = Instant::from_nanos(u64::from_be_bytes(fields.take()?));
        let lifespan = Duration::from_millis(fields.number()?.into());
        let tags = Tags {
            local: fields.number()?,
            remote: fields.number()?,
        };
        let tie = NonZeroU64::new(u64::from_be_bytes(fields.take()?));
        let [local_tsn, remote_tsn, window] =
            [fields.number()?, fields.number()?, fields.number()?];
        let outbound_streams = u16::from_be_bytes(fields.take()?);
        let inbound_streams = u16::from_be_bytes(fields.take()?);
        let [flags] = fields.take()?;
        let adaptation = fields.number()?;
        let local = fields.end(flags & 1 << 1 != 0)?;
        let remote = fields.end(flags & 1 << 2 != 0)?;
        let ends = Ends { local, remote };
        let mut others = Others::default();
        // Where there is none it is 0, which is no address of a host.
        for _ in 0..OTHERS_MAX {
            others.add(fields.ip(remote.is_ipv6())?, ends, OTHERS_MAX);
        }
        Some(Self {
            made,
            lifespan,
            local,
            remote,
            others,
            tags,
            tie,
            local_tsn: Tsn(local_tsn),
            remote_tsn: Tsn(remote_tsn),
            window,
            outbound_streams,
            inbound_streams,
            adaptation: (flags & 1 != 0).then_some(adaptation),
        })
    }
}

/// An address in 16 bytes.
fn octets(ip: IpAddr) -> [u8; 16] {
    match ip {
        IpAddr::V4(addr) => u128::from(addr.to_bits()).to_be_bytes(),
        IpAddr::V6(addr) => addr.octets(),
    }
}

struct Fields<'a> {
    bytes: &'a mut [u8],
    at: usize,
}

impl Fields<'_> {
    fn put(&mut self, field: &[u8]) {
        self.bytes[self.at..self.at + field.len()].copy_from_slice(field);
        self.at += field.len();
    }
}

struct Reader<'a> {
    rest: &'a [u8],
}

impl Reader<'_> {
    fn take<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (field, rest) = self.rest.split_first_chunk()?;
        self.rest = rest;
        Some(*field)
    }

    fn number(&mut self) -> Option<u32> {
        self.take().map(u32::from_be_bytes)
    }

    fn end(&mut self, is_v6: bool) -> Option<SocketAddr> {
        let addr = self.ip(is_v6)?;
        let port = u16::from_be_bytes(self.take()?);
        Some(SocketAddr::new(addr, port))
    }

    fn ip(&mut self, is_v6: bool) -> Option<IpAddr> {
        let addr = std::net::Ipv6Addr::from(self.take::<16>()?);
        Some(match is_v6 {
            true => IpAddr::V6(addr),
            false => IpAddr::V4(std::net::Ipv4Addr::from_bits(addr.to_bits() as u32)),
        })
    }
}
