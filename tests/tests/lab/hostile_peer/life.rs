//! One hostile peer's life: a TCP connection, as much of MPA as it likes, and then anything.

use std::io::{Read, Write};
use std::net::{IpAddr, SocketAddr, TcpStream};
use std::sync::atomic::Ordering;
use std::time::Duration;

use rnic_tests::pattern::Pattern;
use rustix::net::sockopt::set_socket_linger;
use rustix::net::{AddressFamily, SocketType};

use super::Told;
use crate::kernel_peer::wire::{self, Header};

/// How long it waits for an answer.
const PATIENCE: Duration = Duration::from_millis(300);
/// The longest that it stays silent.
const SILENCE_MS: u64 = 300;

/// What the program told it: STag, tagged offset and length of its region, and the STag of another.
struct Given {
    stag: u32,
    to: u64,
    len: u64,
    kept: u32,
}

fn below(random: &mut Pattern, end: u64) -> u64 {
    random.next_u64() % end.max(1)
}

fn pick<T: Copy>(random: &mut Pattern, from: &[T]) -> T {
    from[below(random, from.len() as u64) as usize]
}

pub fn live(random: &mut Pattern, from: IpAddr, to: SocketAddr, told: &Told) {
    let Ok(mut stream) = connect(from, to) else {
        return;
    };
    told.connected.fetch_add(1, Ordering::Relaxed);
    // Whatever of this fails because the RNIC has ended the connection is as it should be.
    let _ = talk(random, &mut stream, told);
    match below(random, 4) {
        0 => set_socket_linger(&stream, Some(Duration::ZERO)).unwrap(),
        1 => {
            let _ = stream.shutdown(std::net::Shutdown::Write);
            pause(random);
        }
        2 => pause(random),
        _ => {}
    }
}

fn connect(from: IpAddr, to: SocketAddr) -> rustix::io::Result<TcpStream> {
    let socket = rustix::net::socket(AddressFamily::INET, SocketType::STREAM, None)?;
    rustix::net::bind(&socket, &SocketAddr::new(from, 0))?;
    let stream = TcpStream::from(socket);
    // So that a SYN that is dropped holds the thread for seconds only.
    rustix::net::sockopt::set_tcp_user_timeout(&stream, 3000)?;
    rustix::net::connect(&stream, &to)?;
    stream.set_nodelay(true).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream.set_write_timeout(Some(PATIENCE)).unwrap();
    Ok(stream)
}

fn pause(random: &mut Pattern) {
    std::thread::sleep(Duration::from_millis(below(random, SILENCE_MS)));
}

fn talk(random: &mut Pattern, stream: &mut TcpStream, told: &Told) -> std::io::Result<()> {
    match below(random, 12) {
        0 => {
            pause(random);
            return Ok(());
        }
        1 => {
            let len = below(random, 4000) as usize;
            return stream.write_all(&Pattern::bytes(random.next_u64(), len));
        }
        _ => {}
    }
    let mut request = request(random);
    match below(random, 12) {
        0 => request.truncate(below(random, request.len() as u64) as usize),
        1 => flip(random, &mut request),
        _ => {}
    }
    stream.write_all(&request)?;
    let Some(given) = answer(stream)? else {
        return Ok(());
    };
    let mut msns = [1, 1, 1];
    for _ in 0..1 + below(random, 40) {
        let mut bytes = fpdu(random, &given, &mut msns);
        match below(random, 30) {
            0 => bytes.truncate(below(random, bytes.len() as u64) as usize),
            1 => flip(random, &mut bytes),
            2 => bytes.extend(Pattern::bytes(random.next_u64(), 7)),
            3 => {
                let at = below(random, bytes.len() as u64) as usize;
                stream.write_all(&bytes[..at])?;
                pause(random);
                bytes.drain(..at);
            }
            _ => {}
        }
        stream.write_all(&bytes)?;
        told.fpdus.fetch_add(1, Ordering::Relaxed);
    }
    let mut rest = vec![0; 1 << 16];
    while stream.read(&mut rest)? > 0 {}
    Ok(())
}

/// An MPA request, as a rule one that is taken.
fn request(random: &mut Pattern) -> Vec<u8> {
    let enhanced = below(random, 2) == 0;
    let words = match enhanced {
        true => wire::enhanced(below(random, 20) as u16, below(random, 20) as u16, b"hello"),
        false => b"hello".to_vec(),
    };
    let odd = below(random, 15) == 0;
    let frame = wire::StartFrame {
        flags: match (odd, enhanced) {
            (true, _) => random.next_u64() as u8,
            (_, true) => wire::CRC | wire::ENHANCED,
            _ => wire::CRC,
        },
        revision: if enhanced { 2 } else { 1 },
        private_data: words,
    };
    frame.encode(wire::REQUEST_KEY)
}

/// What the program tells in its reply's private data; none when it is refused.
fn answer(stream: &mut TcpStream) -> std::io::Result<Option<Given>> {
    let mut head = [0; 20];
    stream.read_exact(&mut head)?;
    let mut words = vec![0; u16::from_be_bytes([head[18], head[19]]).into()];
    stream.read_exact(&mut words)?;
    let frame = wire::StartFrame {
        flags: head[16],
        revision: head[17],
        private_data: words,
    };
    let (_, _, words) = frame.split();
    if frame.flags & wire::REJECTED != 0 || words.len() != 24 {
        return Ok(None);
    }
    Ok(Some(Given {
        stag: u32::from_be_bytes(words[..4].try_into().unwrap()),
        to: u64::from_be_bytes(words[4..12].try_into().unwrap()),
        len: u64::from_be_bytes(words[12..20].try_into().unwrap()),
        kept: u32::from_be_bytes(words[20..].try_into().unwrap()),
    }))
}

/// An FPDU with a CRC that is right; what it asks for is right as a rule, and else near to it.
fn fpdu(random: &mut Pattern, given: &Given, msns: &mut [u32; 3]) -> Vec<u8> {
    let len = below(random, 1400) as usize;
    let wrong = below(random, 15) == 0;
    let stag = match (wrong, below(random, 4)) {
        (true, 0) => given.kept,
        (true, 1) => random.next_u64() as u32,
        (true, 2) => given.stag ^ (1 << below(random, 32)),
        _ => given.stag,
    };
    let to = match (wrong, below(random, 4)) {
        (true, 0) => given.to + given.len - below(random, 2 * len as u64 + 1),
        (true, 1) => random.next_u64(),
        (true, 2) => u64::MAX - below(random, 2000),
        _ => given.to + below(random, given.len - len as u64),
    };
    let mut payload = Pattern::bytes(random.next_u64(), len);
    let header = match below(random, 6) {
        0..=2 => Header::Tagged {
            last: below(random, 3) > 0,
            opcode: if wrong {
                below(random, 16) as u8
            } else {
                wire::WRITE
            },
            stag,
            to,
        },
        kind => {
            let read = kind == 3;
            if read {
                payload = wire::ReadRequest {
                    sink_stag: random.next_u64() as u32,
                    sink_to: random.next_u64(),
                    size: below(random, 3000) as u32,
                    source_stag: stag,
                    source_to: to,
                }
                .encode();
            }
            let (queue, opcode) = match read {
                true => (wire::READ_QUEUE, wire::READ_REQUEST),
                false => (
                    wire::SEND_QUEUE,
                    pick(
                        random,
                        &[wire::SEND, wire::SEND_INVALIDATE, wire::SEND_SOLICITED],
                    ),
                ),
            };
            let msn = msns[queue as usize];
            msns[queue as usize] += 1;
            Header::Untagged {
                last: read || wrong || below(random, 20) > 0,
                opcode: if wrong {
                    below(random, 16) as u8
                } else {
                    opcode
                },
                invalidate: if wrong { given.kept } else { 0 },
                qn: if wrong {
                    pick(random, &[0, 1, 2, 3, 4, u32::MAX])
                } else {
                    queue
                },
                msn: if wrong {
                    pick(random, &[0, msn, msn + 1, msn + 1000])
                } else {
                    msn
                },
                mo: if wrong {
                    pick(random, &[0, 1, 4000, u32::MAX])
                } else {
                    0
                },
            }
        }
    };
    wire::fpdu(&header, &payload, true)
}

fn flip(random: &mut Pattern, bytes: &mut [u8]) {
    if let Some(at) = bytes.len().checked_sub(1) {
        let at = below(random, at as u64 + 1) as usize;
        bytes[at] ^= 1 << below(random, 8);
    }
}
