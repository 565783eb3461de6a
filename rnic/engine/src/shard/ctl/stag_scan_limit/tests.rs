//! Who has to wait, and for how long.

use std::net::Ipv4Addr;

use super::*;

const CLIENT: ClientId = ClientId(1);

fn address(number: u32) -> (IpAddr, ClientId) {
    (Ipv4Addr::from_bits(0xc612_0000 + number).into(), CLIENT)
}

fn after(milliseconds: u64) -> Instant {
    Instant::ZERO + Duration::from_millis(milliseconds)
}

#[test]
fn mistakes_cost_nothing_and_guesses_more_and_more() {
    let mut stag_scan_limit = StagScanLimit::new();
    let (peer, other) = (address(1), address(2));
    for _ in 1..FREE {
        assert_eq!(stag_scan_limit.note(peer, after(0)), None);
        assert!(!stag_scan_limit.pauses(peer, after(0)));
    }
    let mut now = 0;
    for pause in [100, 200, 400, 800, 1600, 3200, 6400, 10_000, 10_000] {
        let noted = stag_scan_limit.note(peer, after(now));
        let begun = noted.map(|(_, pause)| pause);
        assert_eq!(begun, Some(Duration::from_millis(pause)));
        assert!(
            stag_scan_limit.pauses(peer, after(now + pause - 1)),
            "{pause}"
        );
        assert!(!stag_scan_limit.pauses(peer, after(now + pause)), "{pause}");
        assert!(!stag_scan_limit.pauses(other, after(now)));
        assert!(!stag_scan_limit.pauses((peer.0, ClientId(2)), after(now)));
        now += pause;
    }
    // A minute's rest, and it starts over.
    now += 60_000;
    stag_scan_limit.note(peer, after(now));
    assert!(!stag_scan_limit.pauses(peer, after(now)));
}

#[test]
fn no_more_addresses_are_remembered_than_there_is_room_for() {
    let mut stag_scan_limit = StagScanLimit::new();
    for number in 0..3 * PEERS as u32 {
        for _ in 0..FREE {
            stag_scan_limit.note(address(number), after(u64::from(number)));
        }
        assert!(stag_scan_limit.peers.len() <= PEERS);
    }
    let last = 3 * PEERS as u32 - 1;
    assert!(stag_scan_limit.pauses(address(last), after(u64::from(last))));
    assert!(!stag_scan_limit.pauses(address(0), after(0)));
}

#[test]
fn a_client_that_is_gone_leaves_no_pause_behind() {
    let mut stag_scan_limit = StagScanLimit::new();
    for _ in 0..FREE {
        stag_scan_limit.note(address(1), after(0));
    }
    stag_scan_limit.forget(ClientId(2));
    assert!(stag_scan_limit.pauses(address(1), after(0)));
    stag_scan_limit.forget(CLIENT);
    assert!(!stag_scan_limit.pauses(address(1), after(0)));
}
