//! `userspace-tcp` behind the shared-library interface of google/packetdrill.
//!
//! packetdrill (which is not part of this repository) loads this library with `--so_filename` and calls
//! [`packetdrill_interface_init`]. From then on it makes its system calls, sends its packets and takes its time
//! by the functions that it got. README.md says how to run it.
//!
//! Time is virtual: it passes only while packetdrill sleeps, waits for a packet, or looks at the
//! clock, so that a run is the same on a busy machine as on a quiet one.
//!
//! What the stack can't do is refused with an errno. No call panics into C. `calls` and
//! `memory` are the modules with `unsafe`; nothing behind them sees a pointer.
#![deny(unsafe_code)]

mod calls;
mod connection;
mod errno;
mod interface;
mod memory;
mod options;
mod packets;
mod requests;
mod settings;
mod shim;
mod tcp_info;
mod world;

pub use calls::packetdrill_interface_init;
pub use interface::Interface;
