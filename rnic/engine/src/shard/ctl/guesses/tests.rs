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
    let mut guesses = Guesses::new();
    let (peer, other) = (address(1), address(2));
    for _ in 1..FREE {
        assert_eq!(guesses.note(peer, after(0)), None);
        assert!(!guesses.pauses(peer, after(0)));
    }
    let mut now = 0;
    for pause in [100, 200, 400, 800, 1600, 3200, 6400, 10_000, 10_000] {
        let noted = guesses.note(peer, after(now));
        let begun = noted.map(|(_, pause)| pause);
        assert_eq!(begun, Some(Duration::from_millis(pause)));
        assert!(guesses.pauses(peer, after(now + pause - 1)), "{pause}");
        assert!(!guesses.pauses(peer, after(now + pause)), "{pause}");
        assert!(!guesses.pauses(other, after(now)));
        assert!(!guesses.pauses((peer.0, ClientId(2)), after(now)));
        now += pause;
    }
    // A minute's rest, and it begins anew.
    now += 60_000;
    guesses.note(peer, after(now));
    assert!(!guesses.pauses(peer, after(now)));
}

#[test]
fn no_more_addresses_are_remembered_than_there_is_room_for() {
    let mut guesses = Guesses::new();
    for number in 0..3 * PEERS as u32 {
        for _ in 0..FREE {
            guesses.note(address(number), after(u64::from(number)));
        }
        assert!(guesses.peers.len() <= PEERS);
    }
    let last = 3 * PEERS as u32 - 1;
    assert!(guesses.pauses(address(last), after(u64::from(last))));
    assert!(!guesses.pauses(address(0), after(0)));
}

#[test]
fn a_client_that_is_gone_leaves_no_pause_behind() {
    let mut guesses = Guesses::new();
    for _ in 0..FREE {
        guesses.note(address(1), after(0));
    }
    guesses.forget(ClientId(2));
    assert!(guesses.pauses(address(1), after(0)));
    guesses.forget(CLIENT);
    assert!(!guesses.pauses(address(1), after(0)));
}
