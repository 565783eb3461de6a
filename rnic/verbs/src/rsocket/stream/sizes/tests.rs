use super::*;

const WANTED: Sizes = Sizes {
    send: 1 << 18,
    receive: (1 << 18) + 1,
    send_queue: 384,
    credits: 384,
    iomap: 0,
};

#[test]
fn queues_are_no_deeper_than_the_rnic_has_them() {
    let sizes = WANTED.within(100).unwrap();
    assert_eq!((sizes.send_queue, sizes.credits), (100, 68));
    assert_eq!(sizes.receive, 1 << 18, "the ring has two halves");
    let sizes = WANTED.within(u32::MAX).unwrap();
    assert_eq!((sizes.send_queue, sizes.credits), (384, 384));
}

#[test]
fn an_rnic_of_too_small_queues_is_refused_with_what_is_needed() {
    assert_eq!(WANTED.within(40).unwrap().credits, CREDITS_MIN);
    for deepest in [0, 3, 16, 32, 33, 39] {
        let refused = WANTED.within(deepest).unwrap_err();
        assert_eq!(refused.errno, Errno::NOMEM);
        let why = refused.to_string();
        let says = why.contains("queues of 40") && why.contains(&format!("limit is {deepest}"));
        assert!(says, "{why}");
    }
}

#[test]
fn programs_may_not_ask_for_less_than_a_stream_needs() {
    assert!(WANTED.check().is_ok());
    for (send_queue, credits) in [(15, 8), (16, 7), (0, 0)] {
        let small = Sizes {
            send_queue,
            credits,
            ..WANTED
        };
        assert_eq!(small.check().unwrap_err().errno, Errno::INVAL);
    }
}
