//! Whatever bytes come, nothing panics, nothing grows without bound, and no byte is shown twice.

use std::collections::HashSet;
use std::time::Duration;

use userspace_tcp::{
    Config, CongestionControl, Flags, IcmpError, Options, SackBlock, Segment, SeqNum, State,
    TcpHeader, Timestamps,
};

use crate::script::*;

struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    fn below(&mut self, n: u64) -> u64 {
        (self.next() >> 20) % n
    }

    /// Often near `base`, now and then anywhere.
    fn near(&mut self, base: SeqNum) -> SeqNum {
        match self.below(8) {
            0 => SeqNum(self.next() as u32),
            1 => base.add((self.below(1 << 18) as u32).wrapping_sub(1 << 17)),
            2 => base,
            _ => base.add((self.below(8000) as u32).wrapping_sub(2000)),
        }
    }
}

fn random_header(script: &Script, random: &mut Random, received: u32, sent: u32) -> TcpHeader {
    let common = [
        ACK,
        ACK,
        ACK,
        ACK | Flags::PSH,
        ACK | Flags::FIN,
        Flags::RST,
        Flags::SYN,
    ];
    let flags = match random.below(10) {
        0 => Flags(random.next() as u8),
        1 => common[random.below(7) as usize],
        _ => common[random.below(4) as usize],
    };
    let mut options = Options::default();
    if random.below(2) == 0 {
        options.timestamps = Some(Timestamps {
            value: 5000u32.wrapping_add(random.below(4) as u32),
            echo: random.next() as u32,
        });
    }
    for _ in 0..random.below(6) {
        let left = random.near(script.iss.add(sent));
        options.sack.push(SackBlock {
            left,
            right: random.near(left),
        });
    }
    if random.below(20) == 0 {
        options.mss = Some(random.next() as u16);
        options.window_scale = Some(random.next() as u8);
    }
    TcpHeader {
        source_port: script.tuple.remote.port,
        destination_port: script.tuple.local.port,
        seq: random.near(IRS.add(received)),
        ack: random.near(script.iss.add(sent)),
        flags,
        window: random.next() as u16,
        urgent: 0,
        options,
    }
}

fn storm(seed: u64, config: Config) {
    let mut random = Random(seed * 0x9e37_79b9 + 1);
    let mut script = Script::active(config);
    let mut shown = HashSet::new();
    let mut in_order = 0;
    let mut alive = 0_u32;
    for _ in 0..400 {
        let sent = script
            .stack
            .info(script.conn())
            .map_or(0, |_| script.next_buf * 500);
        let header = random_header(&script, &mut random, in_order as u32 + 1, sent);
        let len = if random.below(3) == 0 {
            0
        } else {
            random.below(1461) as usize
        };
        let received = script.give_header(header, len);
        for range in received.new.iter() {
            assert!(range.len > 0 && (range.skip + range.len) as usize <= len);
            for at in range.offset..range.offset + u64::from(range.len) {
                assert!(shown.insert(at), "seed {seed}: byte {at} was shown twice");
            }
        }
        if received.conn == script.conn && script.conn.is_some() {
            assert!(received.in_order_to >= in_order, "seed {seed}");
            in_order = received.in_order_to;
            assert!((0..in_order).rev().take(2000).all(|at| shown.contains(&at)));
        }
        if random.below(3) == 0 && script.send(500).is_ok() {
            alive += 1;
        }
        if random.below(4) == 0 {
            let conn = script.conn();
            script.stack.consumed(conn, random.below(in_order + 1000));
        }
        if random.below(200) == 0 {
            let conn = script.conn();
            script.stack.close(conn);
        }
        if random.below(20) == 0 {
            let conn = script.conn();
            script.stack.urge(conn);
        }
        if random.below(10) == 0 {
            let seq = random.near(script.iss.add(sent));
            let mtu = random.below(3000) as u32;
            let (now, tuple) = (script.now, script.tuple);
            script
                .stack
                .icmp(now, tuple, seq, IcmpError::PacketTooBig { mtu });
        }
        if random.below(10) == 0 {
            script.wait(MS * random.below(400) as u32);
        }
        let mut out = 0;
        while let Some(transmit) = script.stack.poll_transmit(script.now) {
            out += 1;
            assert!(out < 100, "seed {seed}: it never stops sending");
            if let (Some(conn), Some(payload)) = (transmit.conn, transmit.payload)
                && script
                    .stack
                    .transmitted(conn, payload.id, payload.buf)
                    .is_some()
            {
                alive -= 1;
            }
        }
        script.stack.poll_event();
        alive -= script.released().len() as u32;
    }
    let conn = script.conn();
    script.stack.abort(conn);
    alive -= script.released().len() as u32;
    assert_eq!(alive, 0, "seed {seed}: buffers are left");
}

#[test]
fn a_storm_of_segments_on_an_open_connection() {
    for seed in 0..60 {
        storm(seed, Config::default());
        storm(seed, plain());
        storm(
            seed,
            Config {
                timestamps: false,
                receive_window: 3000,
                ..Config::default()
            },
        );
        storm(seed, bbr());
    }
}

fn bbr() -> Config {
    Config {
        congestion: CongestionControl::Bbr,
        send_queue_segments: 64,
        timestamps: false,
        ..Config::default()
    }
}

/// It acknowledges what it can't have yet, so that the path seems to be endlessly fast and short:
/// what a model makes of that stays within what the send queue holds.
#[test]
fn a_peer_that_acknowledges_too_early_gets_no_more_than_the_queue_holds() {
    let mut script = Script::active(bbr());
    let most = 64 * u64::from(script.mss() as u32);
    let mut sent = 0;
    for round in 0..2000_u32 {
        while script.send(1000).is_ok() {}
        let out = script.out();
        // Now and then something has to wait for the pace.
        assert!(out.len() <= 64);
        sent += out.iter().map(|out| out.len as i64).sum::<i64>();
        script.give(ACK, 1, 1 + sent, 0);
        script.released();
        let info = script.info();
        assert!(info.cwnd <= most && info.pipe <= most, "{info:?}");
        script.wait(Duration::from_nanos(u64::from(round % 3) * 100_000));
    }
    assert!(sent > 1_000_000, "{sent}");
}

#[test]
fn random_bytes_never_panic_the_parser() {
    let mut random = Random(99);
    let mut sound = 0;
    for _ in 0..50_000 {
        let mut bytes: Vec<u8> = (0..random.below(90)).map(|_| random.next() as u8).collect();
        if let Some(offset) = bytes.get_mut(12) {
            *offset |= 0x50;
        }
        if let Ok(segment) = Segment::parse(&bytes) {
            sound += 1;
            let mut out = [0; 60];
            assert!(segment.header.emit(&mut out) <= 60);
        }
    }
    assert!(sound > 100);
}

#[test]
fn any_first_segment_to_a_listener_is_survived() {
    let mut random = Random(7);
    for _ in 0..3000 {
        let mut script = Script::new(Config::default());
        script.stack.listen(local(), 2).unwrap();
        for _ in 0..6 {
            let header = random_header(&script, &mut random, 0, 0);
            let flags = if random.below(2) == 0 {
                Flags::SYN
            } else {
                header.flags
            };
            script.give_header(TcpHeader { flags, ..header }, random.below(100) as usize);
            script.out();
            script.wait(SEC);
        }
        assert!(script.stack.connections_at(local()) <= 2);
    }
}

#[test]
fn an_ack_war_ends() {
    let mut script = Script::active(plain());
    // A peer that answers every ACK of ours with one that is unacceptable.
    let mut acks = 0;
    for _ in 0..1000 {
        script.give(ACK, -100, 1, 0);
        acks += script.out().len();
    }
    assert_eq!((acks, script.info().state), (1, State::Established));
}

#[test]
fn too_many_holes_drop_the_segment() {
    let mut script = Script::active(plain());
    for i in 1..=1024 {
        assert_eq!(script.give(ACK, 1 + i * 40, 1, 10).new.len(), 1);
    }
    assert!(script.give(ACK, 50_001, 1, 10).new.is_empty());
    assert_eq!(script.info().counters.ranges_full, 1);
    // In order there is always a place.
    assert_eq!(script.give(ACK, 1, 1, 20).new.len(), 1);
    assert_eq!(script.give(ACK, 21, 1, 20).in_order_to, 50);
}
