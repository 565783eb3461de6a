//! Why a run of `tcp-pipe` did not end well: what was asked, what was found, what to do.

use std::io;
use std::net::SocketAddr;

use rnic_host::{HostError, Refusal};
use userspace_net::FourTuple;
use userspace_tcp::{ConnectError, ListenError};

/// Why it did not end well.
#[derive(Debug, thiserror::Error)]
pub enum PipeError {
    #[error(transparent)]
    Device(#[from] HostError),
    /// Addresses, routes, neighbours, ports.
    #[error(transparent)]
    Host(#[from] Refusal),
    #[error("{what}: {source}")]
    System {
        what: &'static str,
        source: io::Error,
    },
    /// The interface has several devices.
    #[error("interface {interface} asked, which is a bond: name an interface without members")]
    Bond { interface: String },
    /// The sizes asked for don't fit packet memory.
    #[error(
        "a window of {window} bytes and {segments} queued segments take {frames} packet buffers, \
         but at most {most} can be had: ask for a smaller --window or --queue-segments"
    )]
    TooLarge {
        /// Bytes.
        window: u32,
        segments: usize,
        /// Packet buffers.
        frames: u64,
        most: u32,
    },
    /// Nothing can listen at this address.
    #[error(transparent)]
    Listen(#[from] ListenError),
    /// Nothing can connect to this address.
    #[error(transparent)]
    Connect(#[from] ConnectError),
    /// A reset answered the SYN.
    #[error("{remote} refused the connection: does a program listen on that port?")]
    Refused { remote: SocketAddr },
    /// Nothing answered the SYN.
    #[error(
        "{remote} did not answer within {seconds} s: is it the right address, and does a packet \
         filter in between drop what is sent to that port?"
    )]
    NoAnswer {
        remote: SocketAddr,
        /// How long it was waited for.
        seconds: u64,
    },
    #[error(
        "{tuple}: the peer reset the connection ({sent} bytes sent, {received} received): it ended \
         or was ended without reading everything"
    )]
    Reset {
        tuple: FourTuple,
        /// Bytes given to TCP.
        sent: u64,
        /// Bytes written to standard output.
        received: u64,
    },
    #[error(
        "{tuple}: the peer acknowledged nothing for too long ({sent} bytes sent, {received} \
         received): is the path still there? (--user-timeout says how long)"
    )]
    Silent {
        tuple: FourTuple,
        /// Bytes given to TCP.
        sent: u64,
        /// Bytes written to standard output.
        received: u64,
    },
    /// The peer went silent, and so did the neighbour that its frames go through.
    #[error(
        "{tuple}: the peer acknowledged nothing for too long ({sent} bytes sent, {received} \
         received), and there is no way to it: {refusal}"
    )]
    Cut {
        tuple: FourTuple,
        /// Bytes given to TCP.
        sent: u64,
        /// Bytes written to standard output.
        received: u64,
        /// Who does not answer.
        refusal: Refusal,
    },
    /// Standard input can't be read.
    #[error("standard input can't be read: {0}")]
    Input(io::Error),
    /// Standard output can't be written.
    #[error("standard output can't be written: {0}; the connection was reset")]
    Output(io::Error),
}
