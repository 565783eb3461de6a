//! The XDP programs and their loaders: steering, and a tap that takes everything.
//!
//! The program takes exactly the frames of claimed (protocol, local address, local port) triples
//! to the AF_XDP socket of the queue they arrived on, and passes every other frame to the kernel
//! untouched. It stays attached as long as a [`Steering`] lives: the kernel takes it away when the
//! process ends, in whatever way. A [`Tap`] takes every frame of an interface, for programs that
//! are the interface's only user.
//!
//! Segments of flows that nobody entered ([`KnownFlows`]) are limited ([`FloodLimits`]), so that a flood
//! of them does not reach the socket.
//!
//! Later fragments of a packet go where its first one went, because only that one has the port. ICMP
//! errors stay with the kernel; [`Steering::icmp_errors`] gives copies of those about what is claimed.
//!
//! What the sender's end of a veth does matters, when a kernel sends:
//! - A VLAN tag is looked for in the frame's bytes only. Where the kernel carries the tag beside
//!   the frame (VLAN offload), the frame looks untagged to the program and to the AF_XDP socket:
//!   `ethtool -K DEV txvlan off` on the sender, `rxvlan off` on the receiver.
//! - In generic mode the sender goes on sending unsplit segments of up to 64 KiB, which do not fit
//!   an AF_XDP socket's frames: `ethtool -K DEV tso off gso off` on the sender. In native mode the
//!   kernel splits them by itself.
//!
//! ```no_run
//! use rnic_steering::{ModePreference, Protocol, Steering, SteeringConfig};
//!
//! let config = SteeringConfig::UNLIMITED;
//! let mut steering = Steering::attach("eth0", ModePreference::NativeThenGeneric, &config)?;
//! steering.claim(Protocol::Tcp, [198, 18, 0, 1].into(), 7471)?;
//! # Ok::<(), rnic_steering::SteeringError>(())
//! ```

#![deny(unsafe_code)]

mod attach;
mod claim;
mod error;
mod features;
mod flood;
mod icmp;
mod load;
mod program;
mod queues;
mod rx_hash;
mod steering;
#[allow(unsafe_code)]
mod sys;
mod tap;

pub use attach::{Mode, ModePreference};
pub use claim::{MAX_CLAIMS, Protocol};
pub use error::SteeringError;
pub use features::{Feature, FeatureState, Features};
pub use flood::{FloodLimits, FlowState, KnownFlows, Rate};
pub use icmp::IpVersion;
pub use program::{MAX_DEVICES, MAX_QUEUES};
pub use queues::number_of_rx_queues;
pub use rx_hash::{RxHash, rx_hash};
pub use steering::{Steering, SteeringConfig};
pub use tap::Tap;
