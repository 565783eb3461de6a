//! What a tool asks of its peer in the start-up, over which transport, and what it says of the answer.

use clap::{Args, ValueEnum};
use rnic::{MarkerUse, MpaOptions, RtrModes, Transport};

/// The options that say so; each end has its own.
#[derive(Clone, Debug, Args)]
pub struct Mpa {
    /// DDP over SCTP instead of TCP: both ends say so. It has no Markers and no CRC of its own, and needs none.
    #[arg(long, conflicts_with_all = ["markers", "aligned", "no_crc"])]
    sctp: bool,
    /// Ask for MPA Markers in what the peer sends, so that it can be placed out of order. Preferred,
    /// a client connects once more without them when it is rejected without private data, and a server
    /// asks for them only if the client does.
    #[arg(
        long,
        value_name = "HOW",
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = "prefer"
    )]
    markers: Option<Markers>,
    /// Ask for TCP segments that begin with FPDUs, to the same end; an extension for peers of the
    /// same kind.
    #[arg(long)]
    aligned: bool,
    /// Ask for no CRCs; they are left out only when neither end asks for them.
    #[arg(long)]
    no_crc: bool,
    /// The client's first messages, of no bytes, that may be agreed on: those that it can send, or
    /// that the server takes.
    #[arg(long, value_name = "MESSAGE,...", value_delimiter = ',')]
    rtr: Vec<Rtr>,
}

/// [`MarkerUse`], where it is used.
#[derive(Clone, Copy, Debug, ValueEnum)]
enum Markers {
    /// If the peer has them.
    Prefer,
    /// Or no connection.
    Require,
}

/// The members of [`RtrModes`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Rtr {
    /// RDMA Write.
    Write,
    /// RDMA Read.
    Read,
    /// Send.
    Send,
}

impl Mpa {
    /// What DDP goes over.
    pub fn transport(&self) -> Transport {
        transport(self.sctp)
    }

    /// The same as the library has it.
    pub fn options(&self) -> MpaOptions {
        let may = |rtr| self.rtr.is_empty() || self.rtr.contains(&rtr);
        MpaOptions {
            markers: match self.markers {
                None => MarkerUse::Off,
                Some(Markers::Prefer) => MarkerUse::Prefer,
                Some(Markers::Require) => MarkerUse::Require,
            },
            aligned: self.aligned,
            crc: !self.no_crc,
            rtr: RtrModes {
                write: may(Rtr::Write),
                read: may(Rtr::Read),
                send: may(Rtr::Send),
            },
            ..MpaOptions::default()
        }
    }
}

/// What DDP goes over, by the flag that says so.
pub fn transport(sctp: bool) -> Transport {
    match sctp {
        true => Transport::Sctp,
        false => Transport::Tcp,
    }
}

/// Says so when a connection came about with less than was asked for.
pub fn note_refused(asked: &MpaOptions, agreed: &MpaOptions) {
    if asked.markers == MarkerUse::Prefer && agreed.markers == MarkerUse::Off {
        log::info!("connected without Markers: the peer rejects who asks for them");
    }
}
