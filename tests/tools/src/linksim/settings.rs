//! What one direction of the link does to its packets.
//!
//! [`Impairments`] is what somebody asked for, each part of it optional, in the one vocabulary that
//! the command line, `KEY=VALUE` lists and files share. [`Settings`] is what is in force.

use std::time::Duration;

use clap::{Args, Parser, ValueEnum};
use serde::Deserialize;

use super::units::{Burst, Limit, Mtu, Rate, Share, Span};

/// What happens to an IP packet above the MTU.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum TooBig {
    /// It is dropped and the sender told by ICMP; IPv4 without DF is fragmented.
    #[default]
    Answer,
    /// It is dropped and nobody told.
    Silent,
}

/// What to change; what is not given stays.
#[derive(Clone, Debug, Default, PartialEq, Args, Deserialize)]
#[serde(rename_all = "kebab-case", default, deny_unknown_fields)]
pub struct Impairments {
    /// Share of packets lost, each by itself
    #[arg(long, value_name = "SHARE", help_heading = "Impairments")]
    pub loss: Option<Share>,
    /// Loss in bursts (Gilbert-Elliott): shares of packets at which a good link turns bad and a
    /// bad one good, and of packets lost in the bad (100%) and the good state (0%)
    #[arg(
        long,
        value_name = "ENTER:LEAVE[:BAD[:GOOD]]",
        help_heading = "Impairments"
    )]
    pub burst_loss: Option<Burst>,
    /// Share of packets sent twice
    #[arg(long, value_name = "SHARE", help_heading = "Impairments")]
    pub duplicate: Option<Share>,
    /// Share of IP packets damaged, in bytes that a checksum of IP, TCP, UDP or ICMPv6 covers
    #[arg(long, value_name = "SHARE", help_heading = "Impairments")]
    pub corrupt: Option<Share>,
    /// How many bits are flipped in a damaged packet (default 1); several can escape a 16-bit checksum
    #[arg(long, value_name = "NUMBER", value_parser = clap::value_parser!(u32).range(1..=64), help_heading = "Impairments")]
    pub corrupt_bits: Option<u32>,
    /// Share of packets held back so that later ones overtake them
    #[arg(long, value_name = "SHARE", help_heading = "Impairments")]
    pub reorder: Option<Share>,
    /// Most packets that overtake one that is held back (default 3); each is held back by 1 to so many
    #[arg(long, value_name = "NUMBER", value_parser = clap::value_parser!(u32).range(1..=10_000), help_heading = "Impairments")]
    pub reorder_by: Option<u32>,
    /// Longest time for which a packet is held back for others to overtake it (default 10ms)
    #[arg(long, value_name = "TIME", help_heading = "Impairments")]
    pub reorder_wait: Option<Span>,
    /// Hold packets back by a time of up to this, instead of by a number of packets (default 0s: do not)
    #[arg(long, value_name = "TIME", help_heading = "Impairments")]
    pub reorder_time: Option<Span>,
    /// Time that every packet takes, one way, beside what the rate costs
    #[arg(long, value_name = "TIME", help_heading = "Impairments")]
    pub delay: Option<Span>,
    /// Up to this much more delay, uniformly random; order is kept
    #[arg(long, value_name = "TIME", help_heading = "Impairments")]
    pub jitter: Option<Span>,
    /// Bits (or bytes) a second of wire: 500Mbit, 62.5MB, none
    #[arg(long, value_name = "RATE", help_heading = "Impairments")]
    pub rate: Option<Rate>,
    /// Bytes that each frame takes on the wire beside its own, from the destination address to
    /// the end of the payload (default 24: preamble, FCS and gap)
    #[arg(long, value_name = "BYTES", value_parser = clap::value_parser!(u32).range(0..=1000), help_heading = "Impairments")]
    pub overhead: Option<u32>,
    /// What the queue in front of the rate limit holds, as 256p (packets) or 64KiB (bytes), none
    /// for as much as there are frames for (default 1000p); what does not fit is dropped
    #[arg(long, value_name = "AMOUNT", help_heading = "Impairments")]
    pub queue: Option<Limit>,
    /// Mark ECN-capable packets (CE) that find more than this in the queue, as DCTCP wants it
    /// (default none)
    #[arg(long, value_name = "AMOUNT", help_heading = "Impairments")]
    pub ecn: Option<Limit>,
    /// Most bytes of an IP packet, or none
    #[arg(long, value_name = "BYTES", help_heading = "Impairments")]
    pub mtu: Option<Mtu>,
    /// What happens to larger packets (default answer)
    #[arg(long, value_enum, value_name = "HOW", help_heading = "Impairments")]
    pub too_big: Option<TooBig>,
    /// Share of TCP segments with payload that are cut in pieces at random places
    #[arg(long, value_name = "SHARE", help_heading = "Impairments")]
    pub split: Option<Share>,
    /// Most pieces of a segment that is cut (default 3)
    #[arg(long, value_name = "NUMBER", value_parser = clap::value_parser!(u32).range(2..=64), help_heading = "Impairments")]
    pub pieces: Option<u32>,
    /// Share of TCP segments with payload that wait for the next one, are joined to it, and cut
    /// again at a random place
    #[arg(long, value_name = "SHARE", help_heading = "Impairments")]
    pub join: Option<Share>,
    /// Longest time for which a segment waits to be joined (default 1ms)
    #[arg(long, value_name = "TIME", help_heading = "Impairments")]
    pub join_wait: Option<Span>,
}

/// `KEY=VALUE` pairs read as the options of the same names.
#[derive(Parser)]
#[command(no_binary_name = true, disable_help_flag = true)]
struct List {
    #[command(flatten)]
    impairments: Impairments,
}

impl Impairments {
    /// Reads `KEY=VALUE` pairs; the keys are the command line's options without their dashes.
    ///
    /// # Errors
    ///
    /// A sentence that names the pair that is wrong.
    pub fn from_pairs<'a>(pairs: impl IntoIterator<Item = &'a str>) -> Result<Self, String> {
        let options = pairs.into_iter().map(|pair| format!("--{pair}"));
        let list = List::try_parse_from(options).map_err(|error| {
            let text = error.to_string();
            let line = text.lines().next().unwrap_or_default();
            line.trim_start_matches("error: ").replace("'--", "'")
        })?;
        Ok(list.impairments)
    }
}

/// What one direction does.
#[derive(Clone, Debug, PartialEq)]
pub struct Settings {
    pub loss: Share,
    pub burst_loss: Burst,
    pub duplicate: Share,
    pub corrupt: Share,
    pub corrupt_bits: u32,
    pub reorder: Share,
    pub reorder_by: u32,
    pub reorder_wait: Duration,
    pub reorder_time: Duration,
    pub delay: Duration,
    pub jitter: Duration,
    pub rate: Rate,
    pub overhead: u32,
    pub queue: Limit,
    pub ecn: Limit,
    pub mtu: Mtu,
    pub too_big: TooBig,
    pub split: Share,
    pub pieces: u32,
    pub join: Share,
    pub join_wait: Duration,
}

impl Default for Settings {
    /// A link that does nothing to its packets.
    fn default() -> Self {
        Self {
            loss: Share::NONE,
            burst_loss: Burst::NONE,
            duplicate: Share::NONE,
            corrupt: Share::NONE,
            corrupt_bits: 1,
            reorder: Share::NONE,
            reorder_by: 3,
            reorder_wait: Duration::from_millis(10),
            reorder_time: Duration::ZERO,
            delay: Duration::ZERO,
            jitter: Duration::ZERO,
            rate: Rate::default(),
            overhead: 24,
            queue: Limit::Packets(1000),
            ecn: Limit::None,
            mtu: Mtu::default(),
            too_big: TooBig::Answer,
            split: Share::NONE,
            pieces: 3,
            join: Share::NONE,
            join_wait: Duration::from_millis(1),
        }
    }
}

impl Settings {
    /// Takes over what is given.
    pub fn apply(&mut self, change: &Impairments) {
        fn set<T: Clone>(to: &mut T, from: &Option<T>) {
            if let Some(value) = from {
                to.clone_from(value);
            }
        }
        let span = |to: &mut Duration, from: Option<Span>| set(to, &from.map(|span| span.0));
        set(&mut self.loss, &change.loss);
        set(&mut self.burst_loss, &change.burst_loss);
        set(&mut self.duplicate, &change.duplicate);
        set(&mut self.corrupt, &change.corrupt);
        set(&mut self.corrupt_bits, &change.corrupt_bits);
        set(&mut self.reorder, &change.reorder);
        set(&mut self.reorder_by, &change.reorder_by);
        span(&mut self.reorder_wait, change.reorder_wait);
        span(&mut self.reorder_time, change.reorder_time);
        span(&mut self.delay, change.delay);
        span(&mut self.jitter, change.jitter);
        set(&mut self.rate, &change.rate);
        set(&mut self.overhead, &change.overhead);
        set(&mut self.queue, &change.queue);
        set(&mut self.ecn, &change.ecn);
        set(&mut self.mtu, &change.mtu);
        set(&mut self.too_big, &change.too_big);
        set(&mut self.split, &change.split);
        set(&mut self.pieces, &change.pieces);
        set(&mut self.join, &change.join);
        span(&mut self.join_wait, change.join_wait);
    }

    /// What in it can't have been meant, if anything.
    pub fn doubt(&self) -> Option<&'static str> {
        if self.ecn != Limit::None && self.rate.bits().is_none() {
            return Some("ecn marks what waits in the queue, and without a rate nothing waits");
        }
        if self.queue == Limit::Packets(0) {
            return Some("a queue of no packet lets nothing pass: give at least 1p");
        }
        None
    }
}
