//! The client against a daemon that is a thread: real sockets, real rings, no RNIC.

mod connections;
#[cfg(feature = "embedded")]
mod embedded;
mod fake;
mod gone;
mod late;
mod listeners;
mod objects;
mod posted_work;
mod program_memory;
mod resize;
mod sources;
mod stags;
mod streams;
mod waiting;
mod waits;
