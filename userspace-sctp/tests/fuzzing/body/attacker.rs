//! The attacker: what it has heard, and the packets that it makes of it and of the input.

use std::net::{IpAddr, Ipv4Addr};

use userspace_sctp::chunk::{Chunk, Init};
use userspace_sctp::packet::Packet;
use userspace_sctp::parameter::Parameter;

use super::input::Input;

/// The address from which it may get answers.
pub const STRANGER: IpAddr = IpAddr::V4(Ipv4Addr::new(198, 18, 0, 9));

#[derive(Debug, Default)]
struct Known {
    /// The Verification Tag of what goes to it.
    tag: u32,
    /// The TSN of the last chunk that it sent.
    tsn: u32,
    /// The State Cookie that it gave.
    cookie: Vec<u8>,
    /// The last packet that went to it.
    packet: Vec<u8>,
}

#[derive(Debug, Default)]
pub struct Attacker {
    known: [Known; 2],
}

impl Attacker {
    /// It sees a packet from a stack. `to`: the other stack, if it goes there.
    pub fn hear(&mut self, from: usize, to: Option<usize>, bytes: &[u8]) {
        let packet = Packet::parse(bytes).expect("what we write can be read");
        if let Some(to) = to {
            self.known[to].packet = bytes.to_vec();
            if packet.header.tag != 0 {
                self.known[to].tag = packet.header.tag;
            }
        }
        let known = &mut self.known[from];
        for chunk in packet.chunks() {
            match chunk {
                Chunk::Init(init) => known.begin(&init),
                Chunk::InitAck(init) => {
                    known.begin(&init);
                    for parameter in init.parameters.iter() {
                        if let Parameter::StateCookie(cookie) = parameter {
                            known.cookie = cookie.to_vec();
                        }
                    }
                }
                Chunk::Data(data) => known.tsn = data.tsn.0,
                _ => {}
            }
        }
    }

    /// A packet to a stack with the other's address `peer`, or with its own. `port` is that of both stacks.
    pub fn packet(
        &self,
        input: &mut Input<'_>,
        to: usize,
        peer: IpAddr,
        port: u16,
    ) -> (IpAddr, Vec<u8>) {
        let (from, source) = match input.below(4) {
            0 => (STRANGER, port),
            1 => (STRANGER, port + 1),
            _ => (peer, port),
        };
        let known = &self.known[to];
        if input.one_in(16) && !known.packet.is_empty() {
            return (from, self.replay(input, to));
        }
        let tag = match input.below(16) {
            0..=2 => 0,
            3 => input.word(),
            // Reflected.
            4 => self.known[1 - to].tag,
            _ => known.tag,
        };
        let mut chunks = self.chunk(input, to);
        while input.one_in(3) {
            chunks.extend(self.chunk(input, to));
        }
        (from, super::packet(source, port, tag, &chunks))
    }

    /// One that was heard, with a byte of its chunks changed.
    fn replay(&self, input: &mut Input<'_>, to: usize) -> Vec<u8> {
        let mut bytes = self.known[to].packet.clone();
        let at = 12 + input.below(bytes.len() - 12);
        bytes[at] ^= input.byte();
        let half = |at: usize| u16::from_be_bytes([bytes[at], bytes[at + 1]]);
        let tag = u32::from(half(4)) << 16 | u32::from(half(6));
        super::packet(half(0), half(2), tag, &bytes[12..])
    }

    fn chunk(&self, input: &mut Input<'_>, to: usize) -> Vec<u8> {
        let (known, peer) = (&self.known[to], &self.known[1 - to]);
        // More often what carries numbers.
        let kind = input.pick(&[
            0, 0, 0, 0, 1, 2, 3, 3, 3, 4, 5, 6, 7, 8, 9, 10, 11, 14, 0x40, 0xc0,
        ]);
        let near = |input: &mut Input<'_>, of: u32| input.near(of).to_be_bytes();
        let (flags, value) = match kind {
            0 => {
                let next = peer.tsn.wrapping_add(1);
                let fields = [
                    near(input, next),
                    [0, input.byte() % 20, 0, input.byte() % 3],
                ];
                let rest = [&[0; 4], bytes(input)].concat();
                (
                    input.pick(&[7, 6, 5, 4, 3, 2, 0, 15]),
                    [fields.concat(), rest].concat(),
                )
            }
            1 | 2 => (0, peer.init(input)),
            3 => {
                let fixed = [near(input, known.tsn), near(input, 4000)].concat();
                let counts = [0, input.byte() % 4, 0, input.byte() % 4];
                (0, [&fixed, &counts[..], bytes(input)].concat())
            }
            7 => (0, near(input, known.tsn).to_vec()),
            10 => {
                let mut cookie = known.cookie.clone();
                if input.one_in(4) && !cookie.is_empty() {
                    let at = input.below(cookie.len());
                    cookie[at] ^= input.byte();
                }
                (0, cookie)
            }
            _ => (input.byte() & 1, bytes(input).to_vec()),
        };
        let len = input.near(4 + value.len() as u32) as u16;
        super::chunk(kind, flags, len, &value)
    }
}

impl Known {
    fn begin(&mut self, init: &Init<'_>) {
        self.tsn = init.initial_tsn.0.wrapping_sub(1);
    }

    /// The value of an INIT or INIT ACK that seems to come from it.
    fn init(&self, input: &mut Input<'_>) -> Vec<u8> {
        let fixed = [
            input.near(self.tag.max(1)),
            input.near(4000),
            input.near(0x0004_0004),
            input.near(self.tsn.wrapping_add(1)),
        ];
        let fixed = fixed.map(u32::to_be_bytes).concat();
        let cookie = input.one_in(2).then(|| {
            let cookie = bytes(input);
            let [a, b] = (4 + cookie.len() as u16).to_be_bytes();
            let mut parameter = [&[0, 7, a, b], cookie].concat();
            parameter.resize(parameter.len().next_multiple_of(4), 0);
            parameter
        });
        [fixed, cookie.unwrap_or_default(), bytes(input).to_vec()].concat()
    }
}

fn bytes<'a>(input: &mut Input<'a>) -> &'a [u8] {
    let most = input.below(32);
    input.take(most)
}
