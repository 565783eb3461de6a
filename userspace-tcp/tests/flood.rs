//! A flood of SYNs that nobody stands behind, and an honest peer in the middle of it (RFC 4987).
#![allow(clippy::unwrap_used)]

mod harness;

use std::net::Ipv4Addr;
use std::time::Duration;

use harness::{Endpoint, Link, Network, Plan, Random};
use userspace_net::{Endpoint as End, FourTuple};
use userspace_tcp::{Config, ConnOptions, Flags, Options, Segment, SeqNum, TcpHeader};

const FLOOD: u64 = 100_000;
const BACKLOG: usize = 10;

/// A SYN of a source that does not exist.
fn give_stray_syn(network: &mut Network, random: &mut Random) {
    let local = End::new(Endpoint::addr(1).into(), 7000);
    let source = Ipv4Addr::from(0xc612_0100 + random.below(0xff00) as u32);
    let remote = End::new(source.into(), 1 + random.below(39_999) as u16);
    let header = TcpHeader {
        source_port: remote.port,
        destination_port: local.port,
        seq: SeqNum(random.next() as u32),
        flags: Flags::SYN,
        window: 65_535,
        options: Options {
            mss: Some(1460),
            ..Options::default()
        },
        ..TcpHeader::default()
    };
    let tuple = FourTuple::new(local, remote);
    let options = ConnOptions { mss: 1460 };
    let stack = &mut network.ends[1].stack;
    let received = stack.receive(network.now, tuple, &Segment::new(header, &[]), options);
    assert!(stack.connections_at(local) <= BACKLOG + 1);
    assert!(received.new.is_empty());
}

/// The peer's transfer goes both ways while `FLOOD` SYNs come, as fast as ten in a millisecond.
fn transfer_in_a_flood(config: &Config) -> Network {
    let end = |side| {
        let plan = Plan {
            bytes: 3_000_000,
            ..Plan::default()
        };
        Endpoint::new(side, config.clone(), plan)
    };
    let mut network = Network::new([end(0), end(1)], Link::default(), 1);
    // What goes to a source that does not exist is lost.
    network.filter =
        Box::new(|_, header, _| [header.source_port, header.destination_port].contains(&40_000));
    let mut random = Random::new(2);
    let local = End::new(Endpoint::addr(1).into(), 7000);
    network.ends[1].stack.listen(local, BACKLOG).unwrap();
    for count in 0..FLOOD {
        if count == FLOOD / 10 {
            let tuple = FourTuple::new((Endpoint::addr(0).into(), 40_000), local);
            let end = &mut network.ends[0];
            let conn = end.stack.connect(network.now, tuple, end.options);
            end.app.conn = Some(conn.unwrap());
        }
        give_stray_syn(&mut network, &mut random);
        if count % 10 == 0 {
            network.run_until(network.now + Duration::from_millis(1));
        }
    }
    network
}

#[test]
fn an_honest_peer_connects_and_transfers_in_a_flood_of_syns() {
    let mut network = transfer_in_a_flood(&Config::default());
    network.run(Duration::from_secs(600));
    network.assert_complete();
    let counters = network.ends[1].stack.counters();
    assert_eq!(counters.cookies_accepted, 1);
    assert!(counters.cookies_sent > FLOOD * 9 / 10, "{counters:?}");
    assert_eq!((counters.backlog_full, counters.half_open_evicted), (0, 0));
}
