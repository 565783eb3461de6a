//! A host with two addresses around a stack that knows of one: its INITs and INIT ACKs list both, packets come from
//! either, and all that comes to either is the stack's.

use std::net::{IpAddr, SocketAddr};

use userspace_sctp::chunk::{Chunk, Init};
use userspace_sctp::packet::{Packet, Writer};
use userspace_sctp::parameter::{self, Parameter, Parameters};

/// The first or second address of the host whose first one is `first`.
pub fn address(first: SocketAddr, home: usize) -> SocketAddr {
    let IpAddr::V4(ip) = first.ip() else {
        panic!("all is IPv4");
    };
    let [a, b, _, d] = ip.octets();
    SocketAddr::new([a, b, home as u8, d].into(), first.port())
}

pub fn of(found: SocketAddr, first: SocketAddr) -> Option<usize> {
    (0..2).find(|home| address(first, *home) == found)
}

/// The packet with both addresses in its INIT or INIT ACK.
pub fn listed(bytes: &[u8], first: SocketAddr) -> Vec<u8> {
    let packet = Packet::parse(bytes).unwrap();
    let mut memory = [0; 1400];
    let mut with_both = |init: Init<'_>| {
        let mut writer = parameter::Writer::new(&mut memory);
        for home in 0..2 {
            let address = Parameter::Address(address(first, home).ip());
            writer.put(&address).unwrap();
        }
        for parameter in init.parameters.iter() {
            writer.put(&parameter).unwrap();
        }
        writer.finish()
    };
    let (init, is_ack) = match packet.chunks().next() {
        Some(Chunk::Init(init)) => (init, false),
        Some(Chunk::InitAck(init)) => (init, true),
        _ => return bytes.to_vec(),
    };
    let len = with_both(init);
    let init = Init {
        parameters: Parameters::new(&memory[..len]),
        ..init
    };
    let mut out = vec![0; 1500];
    let mut writer = Writer::new(&mut out, packet.header).unwrap();
    let chunk = if is_ack {
        Chunk::InitAck(init)
    } else {
        Chunk::Init(init)
    };
    writer.chunk(&chunk).unwrap();
    let len = writer.finish();
    out.truncate(len);
    out
}
