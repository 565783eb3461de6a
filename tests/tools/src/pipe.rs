//! `tcp-pipe`: standard input and output joined to one connection of the userspace TCP over AF_XDP,
//! as netcat joins them to one of the kernel's.
//!
//! [`Relay`] is the loop. Around it: `link` moves frames, `tcp` owns the stack and the byte
//! streams, `input` and `output` are the two standard descriptors, which never block it.

mod error;
mod frames;
mod host;
mod input;
mod link;
mod nonblocking;
mod open;
mod output;
mod paths;
mod relay;
mod settings;
mod sizes;
mod stats;
mod tcp;
mod wait;

pub use error::PipeError;
pub use relay::{Outcome, Relay};
pub use settings::{Direction, Role, Settings};
pub use stats::Stats;
