//! Tests against stacks of others: Linux's siw, bonds, VLANs and SCTP in a virtual machine, and `usrsctp`.
//! They take the machine's image (`tests/interop/build-image`) or a library that nothing else needs.

mod bonds;
mod interop;
mod interop_verbs;
mod lans;
mod sctp_peer;
