//! The client against a daemon that is a thread: real sockets, real rings, no RNIC.

mod connections;
mod fake;
mod futures;
mod gone;
mod late;
mod listeners;
mod objects;
mod program_memory;
mod resize;
mod sources;
mod stags;
mod waiting;
