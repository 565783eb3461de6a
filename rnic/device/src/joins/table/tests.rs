#![allow(clippy::unwrap_used)]

use super::*;

const QP: QpNum = QpNum(5);

fn end(last: u8, number: u32) -> JoinEnd {
    JoinEnd {
        address: IpAddr::from([198, 18, 0, last]),
        number,
    }
}

fn join(local: JoinEnd, remote: JoinEnd) -> Join {
    Join {
        client: ClientId(1),
        local,
        remote,
        mpa: MpaOptions::default(),
    }
}

/// Of the end that listens.
fn listening() -> Join {
    join(end(2, 40), end(1, 30))
}

/// What the peer of a join says of it.
fn asked(join: &Join) -> ((IpAddr, IpAddr), Hello) {
    let ends = (join.local.address, join.remote.address);
    let hello = Hello {
        from: join.remote.into(),
        to: join.local.into(),
    };
    (ends, hello)
}

#[test]
fn one_end_connects_and_the_other_listens() {
    for (a, b) in [
        (end(1, 9), end(2, 3)),
        (end(1, 3), end(1, 9)),
        (end(1, 3), end(200, 3)),
    ] {
        assert!(join(a, b).connects());
        assert!(!join(b, a).connects());
    }
    let v6 = JoinEnd {
        address: "2001:db8::1".parse().unwrap(),
        number: 2,
    };
    assert!(join(end(255, 9), v6).connects());
}

#[test]
fn a_request_is_accepted_by_the_queue_pair_that_names_its_peer_only() {
    let now = Instant::now();
    let right = listening();
    let wrong = [
        join(right.local, end(1, 31)),
        join(right.local, end(3, 30)),
        join(end(2, 41), right.remote),
        join(end(4, 40), right.remote),
    ];
    for (number, other) in (1..).zip(wrong) {
        let mut table = Table::default();
        table.add(QP, right, now);
        let (ends, hello) = asked(&other);
        let verdict = table.requested(ConnRequestId(number), ends, hello, now);
        assert_eq!(verdict, Verdict::Keep, "{other:?}");
        // An address that the peer only says it has.
        let (_, hello) = asked(&right);
        let from_elsewhere = (right.local.address, end(9, 0).address);
        let verdict = table.requested(ConnRequestId(90), from_elsewhere, hello, now);
        assert_eq!(verdict, Verdict::Keep);
        let (ends, hello) = asked(&right);
        let verdict = table.requested(ConnRequestId(91), ends, hello, now);
        assert_eq!(verdict, Verdict::Accept(QP));
        // It has its peer.
        let verdict = table.requested(ConnRequestId(92), ends, hello, now);
        assert_eq!(verdict, Verdict::Keep);
    }
}

#[test]
fn a_request_may_come_first() {
    let now = Instant::now();
    let (ends, hello) = asked(&listening());
    let mut table = Table::default();
    let request = ConnRequestId(7);
    assert_eq!(table.requested(request, ends, hello, now), Verdict::Keep);
    assert_eq!(table.next_match(), None);
    table.add(QP, listening(), now);
    assert_eq!(table.next_match(), Some((request, QP)));
    assert_eq!(table.next_match(), None);
    // The attempt failed, and the peer asks again.
    table.failed(QP, now);
    assert_eq!(
        table.requested(request, ends, hello, now),
        Verdict::Accept(QP)
    );
    table.connected(QP);
    assert_eq!(table.deadline(), None);
}

#[test]
fn requests_that_wait_are_few_and_not_for_long() {
    let now = Instant::now();
    let mut table = Table::default();
    let mut number = 0;
    let mut kept = |table: &mut Table, peer| {
        let (ends, hello) = asked(&join(end(2, 40), end(peer, 30)));
        number += 1;
        table.requested(ConnRequestId(number), ends, hello, now) == Verdict::Keep
    };
    let of_one = (0..100).filter(|_| kept(&mut table, 10)).count();
    assert_eq!(of_one, EARLY_OF_PEER_MAX);
    let of_all = (11..=255).filter(|peer| kept(&mut table, *peer)).count();
    assert_eq!(of_one + of_all, EARLY_MAX);
    assert_eq!(table.deadline(), Some(now + EARLY_WAIT));
    assert_eq!(table.next_expired(now), None);
    table.request_gone(ConnRequestId(1));
    let over = now + EARLY_WAIT;
    let expired = std::iter::from_fn(|| table.next_expired(over)).count();
    assert_eq!(expired, EARLY_MAX - 1);
    assert_eq!(table.deadline(), None);
}

#[test]
fn attempts_are_made_again_after_longer_and_longer_pauses() {
    let start = Instant::now();
    let join = join(end(1, 30), end(2, 40));
    let mut table = Table::default();
    table.add(QP, join, start);
    let mut now = start;
    let mut pauses = Vec::new();
    for _ in 0..12 {
        assert_eq!(table.next_due(now), Some((QP, join)));
        assert_eq!(table.next_due(now), None);
        let next = table.deadline().unwrap();
        pauses.push(next - now);
        now = next;
    }
    assert_eq!(pauses[..3], [1, 2, 4].map(Duration::from_millis));
    assert_eq!(pauses[11], RETRY_MAX);
    table.begun(QP);
    assert_eq!(table.deadline(), None);
    table.failed(QP, now);
    assert_eq!(table.deadline(), Some(now + RETRY_MAX));
    assert_eq!(table.remove(QP), Some(join));
    assert_eq!(table.deadline(), None);
    table.failed(QP, now);
    assert!(!table.contains(QP));
}
