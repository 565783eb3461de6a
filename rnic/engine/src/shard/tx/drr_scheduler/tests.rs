use super::*;
use crate::shard::conn_ids::conn_ids;

const ONE: ClientId = ClientId(1);
const OTHER: ClientId = ClientId(2);

/// Two clients with so many queue pairs each.
fn share(queue_pairs: usize) -> DrrScheduler {
    let mut share = DrrScheduler::new(2, 2 * queue_pairs);
    for client in [ONE, OTHER] {
        (0..queue_pairs).for_each(|_| share.queue_pair_added(client));
    }
    share
}

#[test]
fn only_the_last_of_all_that_wait_is_the_last() {
    let ids = conn_ids(3);
    let mut share = share(2);
    share.push(ONE, ids[0]);
    share.push(ONE, ids[1]);
    share.push(OTHER, ids[2]);
    let next = |share: &mut DrrScheduler, client, id| {
        assert_eq!(share.next_client(), Some(client));
        assert_eq!(share.next(client).map(|(id, _)| id), Some(id));
        share.is_last(client)
    };
    assert!(
        !next(&mut share, ONE, ids[0]),
        "its own waits, and another's"
    );
    assert!(!next(&mut share, ONE, ids[1]), "another's waits");
    share.end(ONE);
    assert!(next(&mut share, OTHER, ids[2]));
    share.end(OTHER);
    assert!(share.is_idle());
    share.push(ONE, ids[0]);
    share.push(ONE, ids[1]);
    assert!(!next(&mut share, ONE, ids[0]), "its own waits");
    assert!(next(&mut share, ONE, ids[1]));
}

/// Whoever sends much at once pays for it in its next turns.
#[test]
fn clients_get_as_many_bytes_whatever_they_send_at_once() {
    let ids = conn_ids(2);
    let mut share = share(1);
    let mut sent = [0, 0];
    share.push(ONE, ids[0]);
    share.push(OTHER, ids[1]);
    for _ in 0..1000 {
        let client = share.next_client().unwrap();
        let (at, bytes) = if client == ONE {
            (0, 100_000)
        } else {
            (1, 1000)
        };
        while let Some((id, credit)) = share.next(client) {
            assert!(credit > 0);
            share.spend(client, bytes);
            sent[at] += bytes;
            share.again(client, id);
        }
        share.end(client);
    }
    assert!(
        sent[0].abs_diff(sent[1]) <= 100_000 + QUANTUM as usize,
        "{sent:?}"
    );
}

#[test]
fn one_that_holds_its_share_of_frames_goes_on_when_it_holds_fewer() {
    let ids = conn_ids(2);
    let mut share = share(1);
    share.hold(ids[0], ONE, 10);
    assert_eq!(share.held_beside_others(ONE), None);
    assert_eq!(share.held_beside_others(OTHER), Some(0));
    share.push(ONE, ids[0]);
    assert_eq!(share.next_client(), Some(ONE));
    share.wait_for_frames(ONE);
    assert!(share.is_idle());
    share.hold(ids[0], ONE, 9);
    assert_eq!(share.next_client(), Some(ONE));
    share.hold(ids[1], OTHER, 1);
    assert_eq!(share.held_beside_others(ONE), Some(9));
    share.let_go(ids[0]);
    assert_eq!(share.held_beside_others(ONE), Some(0));
}

#[test]
fn nobody_saves_credit_for_later() {
    let ids = conn_ids(1);
    let mut share = share(1);
    for _ in 0..10 {
        share.push(ONE, ids[0]);
        assert_eq!(share.next_client(), Some(ONE));
        assert_eq!(share.next(ONE), Some((ids[0], QUANTUM as usize)));
        share.spend(ONE, 100);
        share.end(ONE);
    }
}

/// One share is spent by turns of rounds, the other at once.
#[test]
fn whoever_is_alone_has_and_pays_what_a_round_gives_and_takes() {
    let ids = conn_ids(1);
    let (mut rounds, mut alone) = (share(1), share(1));
    let mut debts = 0;
    for cost in [0, 512, 32 << 10, 100_000, 512, 512, 70_000, 512, 512, 512] {
        rounds.push(ONE, ids[0]);
        assert_eq!(rounds.next_client(), Some(ONE));
        let next = rounds.next(ONE);
        let allowed = alone.alone(ONE).map(|alone| alone.allowed.credit);
        assert_eq!(allowed, next.map(|(_, credit)| credit));
        // In debt it sends nothing, and owes less with each round.
        let cost = if next.is_some() { cost } else { 0 };
        debts += u32::from(next.is_none());
        rounds.spend(ONE, cost);
        if next.is_none() {
            rounds.change(ONE, |account| account.ready.clear());
        }
        rounds.end(ONE);
        alone.spend_alone(ONE, cost);
        assert!(rounds.is_idle() && alone.is_idle());
    }
    assert!(debts > 1, "{debts}");
}

#[test]
fn nobody_is_alone_whose_other_connections_wait() {
    let ids = conn_ids(1);
    let mut share = share(1);
    assert!(share.alone(ONE).is_some());
    share.push(ONE, ids[0]);
    share.wait_for_frames(ONE);
    assert!(share.is_idle());
    assert!(share.alone(ONE).is_none());
}
