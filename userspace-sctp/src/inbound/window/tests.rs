use super::ReceiveWindow;

const SIZE: usize = 10_000;
const PACKET: usize = 1_000;

#[test]
fn an_offer_shrinks_by_what_comes_and_grows_by_packets() {
    let mut window = ReceiveWindow::new(SIZE, PACKET);
    window.took(4_000);
    assert_eq!(window.offer(), 6_000);
    assert!(!window.consumed(999));
    assert_eq!(window.offer(), 6_000, "RFC9260-6.2-6");
    assert!(!window.consumed(1));
    assert_eq!(window.offer(), 7_000);
    assert_eq!(window.held(), 3_000);
}

#[test]
fn it_is_wide_open_until_more_than_a_quarter_was_used() {
    let mut window = ReceiveWindow::new(SIZE, PACKET);
    window.took(SIZE / 4);
    assert!(window.is_wide_open());
    window.took(1);
    assert!(!window.is_wide_open());
}

/// RFC9260-6.2-11 and RFC9260-6.2-12: the peer hears of it, but not of each byte.
#[test]
fn the_peer_hears_of_half_a_window_that_became_free() {
    let mut window = ReceiveWindow::new(SIZE, PACKET);
    window.took(SIZE);
    assert_eq!(window.offer(), 0);
    assert!(window.is_closed());
    let updates = (0..100).filter(|_| {
        let is_due = window.consumed(100);
        if is_due {
            window.offer();
        }
        is_due
    });
    assert_eq!(updates.count(), 2);
    assert_eq!(window.offer() as usize, SIZE);
}

#[test]
fn a_peer_that_exceeds_the_window_gets_no_second_one_more() {
    let mut window = ReceiveWindow::new(SIZE, PACKET);
    window.took(SIZE + 500);
    assert!(window.is_closed() && !window.is_exceeded());
    window.took(SIZE);
    assert!(window.is_exceeded());
    window.consumed(usize::MAX);
    assert_eq!(window.offer() as usize, SIZE);
}
