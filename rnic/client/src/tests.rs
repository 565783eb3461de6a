//! The client against a daemon that is a thread: real sockets, real rings, no RNIC.

mod connections;
#[cfg(feature = "embedded")]
mod embedded;
mod fake;
mod futures;
mod gone;
mod late;
mod listeners;
mod objects;
mod outstanding;
mod program_memory;
mod resize;
mod sources;
mod stags;
mod streams;
mod waiting;
