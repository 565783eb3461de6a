use std::time::Duration;

use userspace_tcp::{Config, Flags, State};

use crate::script::*;

const FIN: Flags = Flags(Flags::FIN.0 | Flags::ACK.0);

/// Who is about to leave stays for the peer's next FIN, should the last ACK have been lost, and for the one
/// behind that.
#[test]
fn a_lost_last_ack_is_worth_two_retransmission_timeouts() {
    let mut script = Script::active(plain());
    let linger = |script: &Script| script.stack.linger(script.now);
    script.close();
    script.one();
    assert_eq!(linger(&script), Duration::ZERO, "FIN-WAIT-1");
    script.give(FIN, 1, 2, 0);
    script.one();
    let rto = script.info().rto;
    assert_eq!(linger(&script), 2 * rto);
    script.wait(rto);
    assert_eq!(linger(&script), rto);
    script.give(FIN, 1, 2, 0);
    script.one();
    assert_eq!(linger(&script), 2 * rto, "it was lost again");
    script.wait(2 * rto);
    assert_eq!(linger(&script), Duration::ZERO);
    assert_eq!(script.info().state, State::TimeWait);
}

#[test]
fn nobody_lingers_longer_than_time_wait() {
    let mut script = Script::active(Config {
        time_wait: 50 * MS,
        ..plain()
    });
    script.close();
    script.one();
    script.give(FIN, 1, 2, 0);
    script.one();
    assert_eq!(script.stack.linger(script.now), 50 * MS);
    script.wait(50 * MS);
    assert!(script.is_gone());
    assert_eq!(script.stack.linger(script.now), Duration::ZERO);
}

#[test]
fn half_a_connection_may_stay_open_as_long_as_the_peer_likes() {
    let mut script = Script::active(Config {
        fin_wait_2: Duration::MAX,
        ..plain()
    });
    script.close();
    script.one();
    script.give(ACK, 1, 2, 0);
    assert_eq!(script.stack.next_deadline(), None);
    script.wait(100_000 * SEC);
    assert_eq!(script.give(ACK, 1, 2, 10).new.len(), 1);
    // Asked now and then, if so wished.
    let keepalive = userspace_tcp::KeepAlive::default();
    let conn = script.conn();
    script
        .stack
        .set_keepalive(conn, script.now, Some(keepalive));
    script.wait(SEC);
    assert_eq!(script.one().ack, 11);
    script.wait(7200 * SEC);
    let probe = script.one();
    assert_eq!(
        (probe.seq, probe.len, script.info().state),
        (1, 0, State::FinWait2)
    );
}
