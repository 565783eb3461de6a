//! Two stacks on a link that loses, duplicates, delays and reorders from a seed, under virtual
//! time. Every failure is replayed by its seed.
// Each test binary uses its part.
#![allow(dead_code, unused_imports)]

mod bottleneck;
mod buffer;
mod bytes;
mod endpoint;
mod network;
mod random;

pub use bottleneck::{Bottleneck, Dumbbell};
pub use buffer::{Buf, Buffers};
pub use bytes::{BytePlan, Bytes};
pub use endpoint::{Endpoint, Plan};
pub use network::{Link, Network};
pub use random::Random;
