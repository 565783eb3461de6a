//! What the fuzz target does with bytes. The target of `fuzz/` calls it, and so does an ordinary
//! test, with random bytes and with the corpus.

mod draft;
mod grants;
#[path = "../../../../../userspace-tcp/tests/fuzzing/body/input.rs"]
mod input;
#[path = "../../shared/node.rs"]
mod node;
mod peer;
#[path = "../../shared/sctp_peer.rs"]
mod sctp_peer;
pub mod session;
pub mod stream;
mod work;
