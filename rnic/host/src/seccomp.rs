//! A seccomp filter for a thread (seccomp(2)): which system calls it may still make.
//!
//! A thread that handles what strangers send does little with the kernel once it is set up. Should a
//! stranger ever have it do something else, the kernel refuses and the process ends with a message
//! that says what was tried. The filter is the calling thread's alone, and for good.
//!
//! What the kernel runs is a classic BPF program of a few dozen instructions over `struct
//! seccomp_data` (linux/seccomp.h): `program` makes it, `report` says what it met, and only those
//! two know of numbers.

mod program;
mod report;
mod shard;

use std::io;

use program::Rule;
use shard::rules as shard_rules;

/// Lets the calling thread make the calls that the thread of a shard needs, and no others. `udp`: it has a UDP socket
/// for a port.
///
/// # Errors
///
/// The kernel's, which may be built without filters; `Unsupported` on processors whose numbers of
/// system calls are not known here.
pub fn restrict_shard(udp: bool) -> io::Result<()> {
    install(&shard_rules(udp))
}

/// Lets the calling thread make the calls that these rules allow, and no others.
fn install(rules: &[Rule]) -> io::Result<()> {
    let program = program::compile(rules).ok_or(io::ErrorKind::Unsupported)?;
    // The kernel wants one or the other: this, or CAP_SYS_ADMIN.
    rustix::thread::set_no_new_privs(true)?;
    report::listen()?;
    program::install(&program)
}

#[cfg(test)]
mod tests;
