//! Tests against stacks of others: Linux's siw, bonds and SCTP in a virtual machine, `usrsctp`, `dcsctp` and
//! `sctp-proto`. They take the machine's image (`tests/interop/build-image`) or a library that nothing else needs.

mod bonds;
mod interop;
mod interop_verbs;
mod sctp;
mod sctp_memory;
mod sctp_peer;
mod sctp_usrsctp;
