//! Answers to packets of no association: a listener's to an INIT (RFC 9260 section 5.1), and those to what comes out
//! of the blue (section 8.4). They are made of the packet alone, and nothing is kept of it.

#[cfg(test)]
mod tests;

use std::net::SocketAddr;
use std::num::NonZeroU64;
use std::time::Duration;

use userspace_net::Instant;

use crate::addresses::Others;
use crate::cause::{self, Cause, Causes};
use crate::chunk::{Chunk, Init, InitError};
use crate::cookie::{self, Secret, State, Tags};
use crate::interface::Ends;
use crate::packet::{Header, Packet, Writer};
use crate::parameter::{self, Parameter, Parameters};
use crate::tlv::NoRoom;
use crate::tsn::Tsn;

/// How long a cookie is good (`Valid.Cookie.Life`).
pub const COOKIE_LIFESPAN: Duration = Duration::from_secs(60);

/// Bytes for an answer: an INIT ACK with the largest cookie and as many reported parameters as an INIT has room
/// for. What does not fit is not reported.
pub const ANSWER_MAX: usize = 1200;

/// What an endpoint says of itself when an association begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Offer {
    /// The receiver window, in bytes; at least [`crate::chunk::RWND_MIN`].
    pub window: u32,
    /// Streams that it would like to send on; at least 1.
    pub outbound_streams: u16,
    /// Streams that it can receive on; at least 1.
    pub inbound_streams: u16,
    /// The Adaptation Layer Indication. A peer that has none, or another one, is refused (RFC 5043 section 7.1).
    pub adaptation: Option<u32>,
}

/// What an answer to an INIT needs beside the packet.
#[derive(Debug)]
pub struct Listening<'a> {
    pub offer: Offer,
    /// For the cookie.
    pub secret: &'a Secret,
    /// Our address and port, to which the INIT came.
    pub local: SocketAddr,
    pub remote: SocketAddr,
    /// Most further addresses of the peer.
    pub other_addresses: usize,
    pub now: Instant,
    /// A random Verification Tag, not 0 (section 5.3.1).
    pub tag: u32,
    /// The TSN of our first chunk; random, too.
    pub initial_tsn: Tsn,
    /// The tie tags of the association that there is already.
    pub tie: Option<NonZeroU64>,
}

/// Why an INIT gets an ABORT, or nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum InitRefusal {
    /// It is not alone in its packet, or has a Verification Tag: dropped (section 12.3).
    #[error("an INIT is not alone in its packet, or the packet has a Verification Tag")]
    NotAlone,
    /// A fixed field is wrong. Without a tag no answer is possible.
    #[error(transparent)]
    Fields(#[from] InitError),
    /// An address is a host name (section 3.3.2.1.4).
    #[error("an address of the INIT is a host name")]
    HostName,
    /// A parameter has a length that it can't have.
    #[error("a parameter of the INIT is malformed")]
    Malformed,
    /// It speaks for another layer than ours, or for none.
    #[error("the peer's adaptation indication is {found:?}, ours is {ours}")]
    Adaptation { found: Option<u32>, ours: u32 },
}

/// What is sent back, and why if it is a refusal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Answer {
    /// Bytes that were written; 0 for none.
    pub len: usize,
    /// Why there is no association to come.
    pub refusal: Option<InitRefusal>,
}

/// Answers the INIT of a packet, whose checksum is right, by an INIT ACK or an ABORT in `out`.
///
/// # Errors
/// When `out` has no room for it: [`ANSWER_MAX`] bytes are always enough.
pub fn answer_init(
    packet: &Packet<'_>,
    init: &Init<'_>,
    listening: &Listening<'_>,
    out: &mut [u8],
) -> Result<Answer, NoRoom> {
    let acceptable = match is_alone(packet) {
        true => acceptable(init, &listening.offer),
        false => Err(InitRefusal::NotAlone),
    };
    let (len, refusal) = match acceptable {
        Ok(adaptation) => (init_ack(packet, init, adaptation, listening, out)?, None),
        Err(refusal) => match cause_of(refusal, init) {
            Some(cause) => (abort(packet, init.tag, &cause, false, out)?, Some(refusal)),
            None => (0, Some(refusal)),
        },
    };
    Ok(Answer { len, refusal })
}

/// Whether an INIT is the only chunk of a packet without a tag. Another one is dropped, from any sender (section 12.3).
pub(crate) fn is_alone(packet: &Packet<'_>) -> bool {
    packet.chunks().count() == 1 && packet.header.tag == 0
}

/// The peer's indication, when an association may come of its INIT.
fn acceptable(init: &Init<'_>, offer: &Offer) -> Result<Option<u32>, InitRefusal> {
    init.check()?;
    let mut found = None;
    for parameter in init.parameters.iter() {
        match parameter {
            Parameter::HostName(_) => return Err(InitRefusal::HostName),
            Parameter::Malformed => return Err(InitRefusal::Malformed),
            Parameter::Adaptation(code) => found = Some(code),
            _ => {}
        }
    }
    match offer.adaptation {
        Some(ours) if found != Some(ours) => Err(InitRefusal::Adaptation { found, ours }),
        _ => Ok(found),
    }
}

/// What an ABORT says; none is sent for what can't be answered.
fn cause_of<'a>(refusal: InitRefusal, init: &Init<'a>) -> Option<Cause<'a>> {
    Some(match refusal {
        InitRefusal::NotAlone | InitRefusal::Fields(InitError::TagZero) => return None,
        InitRefusal::Fields(_) => Cause::InvalidParameter,
        InitRefusal::HostName => {
            let address = init
                .parameters
                .iter()
                .find_map(|parameter| match parameter {
                    Parameter::HostName(address) => Some(address),
                    _ => None,
                });
            Cause::UnresolvableAddress(address.unwrap_or_default())
        }
        InitRefusal::Malformed => Cause::ProtocolViolation(b"malformed parameter"),
        InitRefusal::Adaptation { .. } => Cause::UserInitiated(b"another adaptation layer"),
    })
}

fn init_ack(
    packet: &Packet<'_>,
    init: &Init<'_>,
    adaptation: Option<u32>,
    listening: &Listening<'_>,
    out: &mut [u8],
) -> Result<usize, NoRoom> {
    let Offer {
        window,
        outbound_streams,
        inbound_streams,
        ..
    } = listening.offer;
    // What one side can't receive the other does not send (section 5.1.1).
    let outbound_streams = outbound_streams.min(init.inbound_streams);
    let ends = Ends {
        local: listening.local,
        remote: listening.remote,
    };
    let cookie = listening.secret.bake(&State {
        made: listening.now,
        lifespan: COOKIE_LIFESPAN,
        local: listening.local,
        remote: listening.remote,
        others: Others::of(init.parameters, ends, listening.other_addresses),
        tags: Tags {
            local: listening.tag,
            remote: init.tag,
        },
        tie: listening.tie,
        local_tsn: listening.initial_tsn,
        remote_tsn: init.initial_tsn,
        window: init.window,
        outbound_streams,
        inbound_streams: inbound_streams.min(init.outbound_streams),
        adaptation,
    });
    let mut parameters = [0; ANSWER_MAX - 32];
    let mut writer = parameter::Writer::new(&mut parameters);
    writer.put(&Parameter::StateCookie(&cookie))?;
    if let Some(ours) = listening.offer.adaptation {
        writer.put(&Parameter::Adaptation(ours))?;
    }
    for parameter in init.parameters.iter() {
        if let Parameter::Unknown { report, whole } = parameter
            && report.is_told()
            && writer.put(&Parameter::Unrecognized(whole)).is_err()
        {
            break;
        }
    }
    let len = writer.finish();
    let ack = Chunk::InitAck(Init {
        tag: listening.tag,
        window,
        outbound_streams,
        inbound_streams,
        initial_tsn: listening.initial_tsn,
        parameters: Parameters::new(&parameters[..len]),
    });
    reply(packet, init.tag, &ack, out)
}

/// Why a packet out of the blue gets no answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Silence {
    Abort,
    /// It ends what is over already: SHUTDOWN COMPLETE, COOKIE ACK, or an ERROR for a stale cookie.
    Over,
    /// It has no Verification Tag, and is no INIT (section 8.5.1).
    NoTag,
    /// It has no whole chunk.
    Nothing,
}

/// Answers a packet of no association, whose checksum is right and whose addresses are unicast, in `out`; gives the
/// answer's length. An INIT for a listener and a COOKIE ECHO that is good are not for here. How often such answers
/// go the caller bounds.
///
/// # Errors
/// Why there is no answer.
pub fn answer_stranger(packet: &Packet<'_>, out: &mut [u8]) -> Result<usize, Silence> {
    let has = |wanted: fn(&Chunk<'_>) -> bool| packet.chunks().any(|chunk| wanted(&chunk));
    let tag = packet.header.tag;
    let first = packet.chunks().next().ok_or(Silence::Nothing)?;
    if has(|chunk| matches!(chunk, Chunk::Abort { .. })) {
        return Err(Silence::Abort);
    }
    if tag == 0 && !matches!(first, Chunk::Init(_)) {
        return Err(Silence::NoTag);
    }
    let answer = if let Chunk::Init(init) = first {
        // Nobody listens: the sender's own tag, and no T bit (rule 3).
        if init.tag == 0 || !is_alone(packet) {
            return Err(Silence::Nothing);
        }
        abort(
            packet,
            init.tag,
            &Cause::UserInitiated(b"nobody listens"),
            false,
            out,
        )
    } else if has(|chunk| matches!(chunk, Chunk::ShutdownAck)) {
        reply(
            packet,
            tag,
            &Chunk::ShutdownComplete { reflected: true },
            out,
        )
    } else if has(is_of_the_end) {
        return Err(Silence::Over);
    } else {
        abort(
            packet,
            tag,
            &Cause::ProtocolViolation(b"no association"),
            true,
            out,
        )
    };
    answer.map_err(|_| Silence::Nothing)
}

/// What is only sent in an association that is over or has never been (rules 6 and 7).
fn is_of_the_end(chunk: &Chunk<'_>) -> bool {
    match chunk {
        Chunk::ShutdownComplete { .. } | Chunk::CookieAck => true,
        Chunk::Error(causes) => causes
            .iter()
            .any(|cause| matches!(cause, Cause::StaleCookie(_))),
        _ => false,
    }
}

fn abort(
    packet: &Packet<'_>,
    tag: u32,
    cause: &Cause<'_>,
    reflected: bool,
    out: &mut [u8],
) -> Result<usize, NoRoom> {
    let mut causes = [0; ANSWER_MAX - 64];
    let mut writer = cause::Writer::new(&mut causes);
    writer.put(&cause.within(ANSWER_MAX - 64))?;
    let len = writer.finish();
    let causes = Causes::new(&causes[..len]);
    reply(packet, tag, &Chunk::Abort { reflected, causes }, out)
}

/// A packet of one chunk, back to where `packet` came from.
fn reply(
    packet: &Packet<'_>,
    tag: u32,
    chunk: &Chunk<'_>,
    out: &mut [u8],
) -> Result<usize, NoRoom> {
    let header = Header {
        source: packet.header.destination,
        destination: packet.header.source,
        tag,
    };
    let mut writer = Writer::new(out, header)?;
    writer.chunk(chunk)?;
    Ok(writer.finish())
}

const _: () = assert!(cookie::LEN + 100 < ANSWER_MAX);
