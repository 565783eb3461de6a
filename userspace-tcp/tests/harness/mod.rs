//! Two stacks on a link that loses, duplicates, delays and reorders from a seed, under virtual
//! time. Every failure is replayed by its seed.
// Each test binary uses its part.
#![allow(dead_code, unused_imports)]

mod application;
mod bottleneck;
mod buffer;
pub mod bursts;
mod endpoint;
mod network;
pub mod packet;
pub mod passive;
mod pattern;
mod random;
mod seeds;
mod seen;
mod stream;

pub use application::{Application, Plan};
pub use bottleneck::{Bottleneck, Dumbbell};
pub use buffer::{Buf, Buffers};
pub use endpoint::Endpoint;
pub use network::{Link, Network};
pub use pattern::make_pattern;
pub use random::Random;
pub use seeds::{Replay, seeds};
pub use seen::Seen;
pub use stream::{BytePlan, ByteStream};
