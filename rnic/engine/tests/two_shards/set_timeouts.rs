//! Timeouts that change while the shard runs.

use std::time::Duration;

use rnic_engine::command::{Command, Timeouts};
use userspace_tcp::KeepAlive;

use crate::impairment::Impairment;
use crate::peer_timeout::{told, vanish};
use crate::raw::{Duel, request};
use crate::side::{Side, SideConfig};
use crate::world::World;

fn timeouts() -> Timeouts {
    Timeouts {
        user_timeout: Duration::from_secs(3),
        keepalive: None,
        first_byte_timeout: Duration::from_secs(1),
        answer_timeout: Duration::from_secs(20),
        receive_wait: rnic_ipc::control::ReceiveWait::Off,
    }
}

fn set(side: &mut Side, timeouts: Timeouts, now: userspace_net::Instant) {
    let command = Command::SetTimeouts(timeouts);
    side.shard.execute(command, now).unwrap();
}

fn world() -> World {
    let (config, other) = (SideConfig::default(), SideConfig::default());
    World::with(1, Impairment::NONE, config, other, false)
}

#[test]
fn a_user_timeout_is_of_the_connections_that_there_are_too() {
    let mut world = world();
    let (qp, _) = world.connect();
    world.run_for(Duration::from_secs(2));
    set(&mut world.a, timeouts(), world.now);
    let opcode = rnic_ipc::work::WrOpcode::Write;
    let stag = world.b.stag;
    vanish(&mut world);
    world.a.post_work(qp, opcode, 1, 0, (stag, 0), 1000);
    let early = Duration::from_millis(2900);
    assert!(!world.run_until(early, |w| told(&w.a).is_some()), "early");
    assert!(world.run_until(Duration::from_millis(110), |w| told(&w.a).is_some()));
    let (_, message) = told(&world.a).unwrap();
    assert!(message.contains("3s (user_timeout)"), "{message}");
}

#[test]
fn a_keep_alive_is_of_connections_that_begin_later() {
    for later in [true, false] {
        let mut world = world();
        if !later {
            world.connect();
        }
        let keepalive = KeepAlive {
            idle: Duration::from_secs(5),
            interval: Duration::from_secs(2),
            probes: 3,
        };
        let asked = Timeouts {
            keepalive: Some(keepalive),
            ..timeouts()
        };
        set(&mut world.a, asked, world.now);
        if later {
            world.connect();
        }
        world.run_for(Duration::from_secs(30));
        vanish(&mut world);
        world.run_for(Duration::from_secs(15));
        assert_eq!(told(&world.a).is_some(), later);
    }
}

#[test]
fn a_first_byte_and_an_answer_are_waited_for_as_long_as_is_said_now() {
    let mut duel = Duel::new(SideConfig::default());
    duel.side.listen(4, duel.now);
    set(&mut duel.side, timeouts(), duel.now);
    let left = |duel: &Duel| duel.side.shard.levels().connections;
    duel.connect();
    duel.run_for(Duration::from_millis(900));
    assert_eq!(left(&duel), 1);
    duel.run_for(Duration::from_millis(200));
    assert_eq!(left(&duel), 0);

    duel.connect_from("198.18.0.9:5001");
    duel.send(&request(0, b""), 1448);
    duel.run_for(Duration::from_millis(19_900));
    assert_eq!(left(&duel), 1);
    duel.run_for(Duration::from_millis(200));
    assert_eq!(left(&duel), 0);
}

/// RFC 6298 section 5.7: where the SYN or its answer was lost, the next retransmission waits 3 s.
#[test]
fn a_first_byte_that_was_lost_after_a_lost_syn_comes_in_time() {
    let mut duel = Duel::new(SideConfig::default());
    duel.side.listen(4, duel.now);
    duel.connect();
    duel.run_for(Duration::from_millis(4_100));
    duel.send(&request(0, b""), 1448);
    duel.run_for(Duration::from_secs(10));
    assert_eq!(duel.side.shard.levels().connections, 1);
    assert_eq!(duel.side.counter("startup_timeouts"), 0);
}
