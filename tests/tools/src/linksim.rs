//! A link simulator: joins two interfaces and forwards Ethernet frames both ways, with losses,
//! delays and changes that a seed decides.
//!
//! Everything but `carrier`, `run` and `capture` is without I/O: a [`Direction`] takes a frame and
//! the time, and gives frames back when they are due. The same seed and the same frames in the
//! same order meet the same fate. Times are durations since the start of the link.

mod bottleneck;
mod bridge;
mod buffers;
mod capture;
mod carrier;
mod checksum;
mod config;
mod corrupt;
mod counters;
mod direction;
mod icmp;
mod loss;
mod mtu;
mod packet;
mod random;
mod report;
mod resegment;
mod run;
mod schedule;
mod settings;
#[cfg(test)]
mod testing;
mod units;

pub use bridge::{Bridge, Side};
pub use buffers::Buffers;
pub use capture::{Capture, CaptureError};
pub use carrier::{Carrier, CarrierLoss, CarrierOptions};
pub use config::{Change, Config, ConfigError, File, Layer, Planned, Toward, When};
pub use counters::{Counters, Fate};
pub use direction::{Direction, Watch};
pub use report::{Format, Report, Way};
pub use run::{RunError, RunOptions, run};
pub use settings::{Impairments, Settings, TooBig};
pub use units::{Burst, Limit, Mtu, Rate, Share, Span};
