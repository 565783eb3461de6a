//! What a tool asks of its peer in the MPA start-up.

use clap::Args;
use rnic::MpaOptions;

/// The options that say so; each end has its own.
#[derive(Clone, Copy, Debug, Args)]
pub struct Mpa {
    /// Ask for MPA Markers in what the peer sends, so that it can be placed out of order.
    #[arg(long)]
    markers: bool,
    /// Ask for TCP segments that begin with FPDUs, to the same end; an extension for peers of the
    /// same kind.
    #[arg(long)]
    aligned: bool,
    /// Ask for no CRCs; they are left out only when neither end asks for them.
    #[arg(long)]
    no_crc: bool,
}

impl Mpa {
    /// The same as the library has it.
    pub fn options(self) -> MpaOptions {
        MpaOptions {
            markers: self.markers,
            aligned: self.aligned,
            crc: !self.no_crc,
            ..MpaOptions::default()
        }
    }
}
