//! Over the host's own loopback interface, to ports of the kernel's choice.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use super::*;
use crate::umem::ChunkSize;

const LOCALHOST: [&str; 2] = ["127.0.0.1", "::1"];

struct End {
    port: UdpPort,
    pool: FramePool,
}

impl End {
    fn new(address: Option<&str>) -> Self {
        let (umem, pool) = Umem::heap(256, ChunkSize::Bytes16384);
        let address = address.map(|address| address.parse().unwrap());
        let port = UdpPort::bind(&umem, address, 0, 128, false).unwrap();
        Self { port, pool }
    }

    fn at(&self, address: &str) -> SocketAddr {
        SocketAddr::new(address.parse().unwrap(), self.port.local_addr().port())
    }

    /// Queues a datagram as a stack would: a frame.
    fn queue(&mut self, from: SocketAddr, to: SocketAddr, payload: &[u8]) {
        let mut frame = self.pool.alloc().unwrap();
        let umem = self.port.umem().clone();
        let headers = headers::headers_len(to.ip());
        let bytes = umem.bytes_mut(&mut frame);
        assert_eq!(
            headers::write(
                &route(to.ip(), from),
                to.port(),
                payload.len(),
                &mut bytes[..headers]
            ),
            Some(())
        );
        bytes[headers..headers + payload.len()].copy_from_slice(payload);
        frame.set_len(headers + payload.len());
        self.port.transmit(frame, 0).unwrap();
    }

    fn flush(&mut self) {
        self.port.flush().unwrap();
        assert_eq!(self.port.unsent(), 0);
        while let Some((frame, _)) = self.port.completed() {
            self.pool.free(frame);
        }
    }

    /// Waits for so many frames.
    fn receive(&mut self, count: usize) -> Vec<Vec<u8>> {
        let umem = self.port.umem().clone();
        let (mut all, mut batch) = (Vec::new(), Vec::new());
        let deadline = Instant::now() + Duration::from_secs(10);
        while all.len() < count {
            assert!(Instant::now() < deadline, "{} of {count}", all.len());
            let most = 64;
            assert!(self.port.receive(&mut self.pool, &mut batch, most) <= most);
            for packet in batch.drain(..) {
                all.push(umem.bytes(packet.first()).to_vec());
                self.pool.free_packet(packet);
            }
        }
        all
    }
}

/// Of what comes from `remote` to `local`.
fn route(local: IpAddr, remote: SocketAddr) -> Route {
    Route {
        local,
        remote,
        class: 0,
    }
}

fn payload_of(frame: &[u8]) -> &[u8] {
    let outgoing = Outgoing::of(frame).unwrap();
    &frame[outgoing.payload()]
}

fn payload(len: usize, first: u8) -> Vec<u8> {
    (0..len).map(|at| first.wrapping_add(at as u8)).collect()
}

#[test]
fn what_comes_has_the_headers_that_it_was_sent_with() {
    for address in LOCALHOST {
        // One socket serves both families.
        let (mut a, mut b) = (End::new(None), End::new(None));
        let (from, to) = (a.at(address), b.at(address));
        a.queue(from, to, b"hello");
        a.flush();
        let frames = b.receive(1);
        let frame = &frames[0];
        assert_eq!(payload_of(frame), b"hello");
        let outgoing = Outgoing::of(frame).unwrap();
        assert_eq!((outgoing.local, outgoing.remote), (from.ip(), to.ip()));
        assert_eq!(outgoing.route(frame).remote, to);
        let source = &frame[outgoing.data.start..][..2];
        assert_eq!(source, from.port().to_be_bytes());
        assert_eq!(frame[..6], LINK_ADDRESS);
        assert_eq!(frame[6..12], LINK_ADDRESS);
    }
}

#[test]
fn datagrams_of_one_length_go_and_come_by_one_call() {
    for address in LOCALHOST {
        let (mut a, mut b) = (End::new(Some(address)), End::new(Some(address)));
        let (from, to) = (a.at(address), b.at(address));
        let lengths = [1400; 20].into_iter().chain([300]);
        let sent: Vec<_> = (0..)
            .zip(lengths)
            .map(|(at, len)| payload(len, at))
            .collect();
        for round in 0..2 {
            for bytes in &sent {
                a.queue(from, to, bytes);
            }
            a.flush();
            let frames = b.receive(sent.len());
            let received: Vec<_> = frames.iter().map(|frame| payload_of(frame)).collect();
            assert_eq!(received, sent, "round {round}");
        }
        let sent = a.port.statistics();
        assert_eq!((sent.send_calls, sent.super_packets_sent), (2, 2));
        assert_eq!(sent.super_packet_segments_sent, 42);
        // In the first round their length was not known.
        assert_eq!(b.port.expected, 1400);
    }
}

#[test]
fn datagrams_of_any_lengths_keep_their_order_and_bytes() {
    let address = LOCALHOST[0];
    let (mut a, mut b) = (End::new(Some(address)), End::new(Some(address)));
    let (from, to) = (a.at(address), b.at(address));
    let lengths = [
        12, 1400, 1400, 9000, 9000, 4, 4, 4, 4, 16_000, 1, 1400, 8000, 8000, 8000, 20,
    ];
    for round in 0..20 {
        let sent: Vec<_> = (round..)
            .zip(lengths)
            .map(|(at, len)| payload(len, at))
            .collect();
        for bytes in &sent {
            a.queue(from, to, bytes);
        }
        a.flush();
        let frames = b.receive(sent.len());
        let received: Vec<_> = frames.iter().map(|frame| payload_of(frame)).collect();
        assert_eq!(received, sent);
    }
}

#[test]
fn an_address_of_the_sender_is_chosen_by_its_frame() {
    let (mut a, mut b) = (End::new(None), End::new(None));
    let (from, to) = (a.at("127.0.0.2"), b.at("127.0.0.3"));
    a.queue(from, to, b"x");
    a.flush();
    let frames = b.receive(1);
    let outgoing = Outgoing::of(&frames[0]).unwrap();
    assert_eq!((outgoing.local, outgoing.remote), (from.ip(), to.ip()));
}

#[test]
fn a_port_where_nobody_is_is_told_by_icmp() {
    for address in LOCALHOST {
        let mut a = End::new(Some(address));
        let from = a.at(address);
        // It was the kernel's choice, and is free again.
        let to = End::new(Some(address)).at(address);
        let bytes = payload(40, 7);
        a.queue(from, to, &bytes);
        a.flush();
        let frames = a.receive(1);
        let frame = &frames[0];
        let (protocol, icmp, inner) = match from {
            SocketAddr::V4(_) => (frame[23], &frame[34..], 20),
            SocketAddr::V6(_) => (frame[20], &frame[54..], 40),
        };
        let expected = match from {
            SocketAddr::V4(_) => (1, [3, 3]),
            SocketAddr::V6(_) => (58, [1, 4]),
        };
        assert_eq!((protocol, [icmp[0], icmp[1]]), expected);
        let udp = &icmp[8 + inner..];
        assert_eq!(udp[..2], from.port().to_be_bytes());
        assert_eq!(udp[2..4], to.port().to_be_bytes());
        assert_eq!(udp[8..], bytes[..QUOTED]);
    }
}

#[test]
fn fragments_of_a_packet_are_one_datagram() {
    let address = LOCALHOST[0];
    let (mut a, mut b) = (End::new(Some(address)), End::new(Some(address)));
    let (from, to) = (a.at(address), b.at(address));
    let bytes = payload(4000, 3);
    a.queue(from, to, &bytes);
    let (frame, _) = {
        // As the stack cuts it: behind 20 bytes of IP header, eight bytes of UDP header count.
        a.port.queue.done(1);
        a.port.completed().unwrap()
    };
    let umem = a.port.umem().clone();
    let whole = umem.bytes(&frame).to_vec();
    for (offset, part) in (0..).step_by(1600).zip(whole[34..].chunks(1600)) {
        let mut fragment = a.pool.alloc().unwrap();
        let place = umem.bytes_mut(&mut fragment);
        place[..34].copy_from_slice(&whole[..34]);
        let total = (20 + part.len()) as u16;
        place[16..18].copy_from_slice(&total.to_be_bytes());
        let more = if offset + part.len() < whole.len() - 34 {
            0x2000
        } else {
            0
        };
        let field = more | (offset / 8) as u16;
        place[20..22].copy_from_slice(&field.to_be_bytes());
        place[34..34 + part.len()].copy_from_slice(part);
        fragment.set_len(34 + part.len());
        a.port.transmit(fragment, 0).unwrap();
    }
    a.flush();
    let frames = b.receive(1);
    assert_eq!(payload_of(&frames[0]), bytes);
    assert_eq!(a.port.statistics().send_calls, 1);
}

#[test]
fn what_is_no_datagram_is_lost_and_what_is_behind_it_is_not() {
    let address = LOCALHOST[0];
    let (mut a, mut b) = (End::new(Some(address)), End::new(Some(address)));
    let (from, to) = (a.at(address), b.at(address));
    let mut frame = a.pool.alloc().unwrap();
    frame.set_len(60);
    a.port.transmit(frame, 0).unwrap();
    a.queue(from, to, b"y");
    a.flush();
    assert_eq!(payload_of(&b.receive(1)[0]), b"y");
    assert_eq!(a.port.statistics().send_dropped, 1);
}

#[test]
fn a_port_that_another_socket_has_is_refused_unless_both_share_it() {
    let (umem, _) = Umem::heap(8, ChunkSize::Bytes2048);
    let bind = |port, shared| UdpPort::bind(&umem, None, port, 1, shared);
    let first = bind(0, false).unwrap();
    let port = first.local_addr().port();
    let error = bind(port, true).unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::AddrInUse);
    drop(first);
    let first = bind(0, true).unwrap();
    assert!(bind(first.local_addr().port(), true).is_ok());
}
