//! Clients that are killed at any moment, a hundred of them or as many as `RNIC_TEST_KILLS` says, leave nothing behind.
//! Both daemons hold what they held before, in every table, and no descriptor, thread or mapping more.

use std::time::{Duration, Instant};

use rnic_tests::footprint::Footprint;
use rnic_tests::lab::Family;
use rnic_tests::pair::Pair;
use rnic_tests::pattern::Pattern;
use rnic_tests::tool;

const PORT: u16 = 18515;
/// Without `RNIC_TEST_KILLS`.
const KILLS: u64 = 100;
/// The latest moment of a client's life at which it is killed: some are not connected by then, and
/// some have sent for a while.
const OLDEST: Duration = Duration::from_millis(200);
/// How soon everything must be as it was. What was half open is waited for longest.
const SOON: Duration = Duration::from_secs(90);

fn number(name: &str, without: u64) -> u64 {
    match std::env::var(name) {
        Ok(number) => number.parse().expect("a number"),
        Err(_) => without,
    }
}

#[test]
fn clients_that_are_killed_at_any_moment_leave_nothing_behind() {
    let mut pair = Pair::new("killed-often");
    // How many the fill ring has varies by a batch, and it is full at the start.
    let frames = |pair: &Pair| [&pair.daemon_a, &pair.daemon_b].map(|d| d.counter("frames_free"));
    let frames_before = frames(&pair);
    let at = pair.b.address(Family::V4, PORT);
    let mut server = tool::server(&pair.daemon_b, "rnic-perf", at, &[]);
    let client = |pair: &Pair, op: &str, length: [&str; 2]| {
        let more = ["--op", op, "--size", "30000", "--depth", "4"];
        let client = tool::client(&pair.daemon_a, "rnic-perf", at, &more);
        client.args(length)
    };
    // What is made once is made. These are killed too: what ends in order stands in TIME-WAIT.
    for op in ["write", "send", "read"] {
        let mut first = client(&pair, op, ["--duration", "3600"]).spawn();
        std::thread::sleep(Duration::from_millis(1000));
        first.kill();
    }
    std::thread::sleep(Duration::from_millis(2000));
    let before = [&pair.daemon_a, &pair.daemon_b].map(Footprint::of);
    let opened_before = pair.daemon_a.counter("active_opens");
    let established_before = pair.daemon_a.counter("established");

    let seed = number("RNIC_TEST_FIRST_SEED", std::process::id().into());
    println!("RNIC_TEST_FIRST_SEED={seed} kills at the same moments again");
    let mut random = Pattern::new(seed);
    let kills = number("RNIC_TEST_KILLS", KILLS);
    for _ in 0..kills {
        let op = ["write", "send", "read"][(random.next_u64() % 3) as usize];
        let age = random.next_u64() % OLDEST.as_micros() as u64;
        let mut victim = client(&pair, op, ["--duration", "3600"]).spawn();
        std::thread::sleep(Duration::from_micros(age));
        victim.kill();
        pair.daemon_a.assert_alive();
        pair.daemon_b.assert_alive();
    }
    println!(
        "{kills} killed: {} had begun to connect, {} were connected",
        pair.daemon_a.counter("active_opens") - opened_before,
        pair.daemon_a.counter("established") - established_before,
    );
    assert!(server.running(), "the server ended: {}", server.stderr());

    let deadline = Instant::now() + SOON;
    loop {
        let after = [&pair.daemon_a, &pair.daemon_b].map(Footprint::of);
        let back = |(now, then): (&Footprint, &Footprint)| now.is_back_at(then);
        let frames_after = frames(&pair);
        let free = |(now, then): (&u64, &u64)| now >= then;
        if after.iter().zip(&before).all(back) && frames_after.iter().zip(&frames_before).all(free)
        {
            break;
        }
        assert!(
            Instant::now() < deadline,
            "before: {before:#?}\n{frames_before:?} frames free\n\
             after: {after:#?}\n{frames_after:?} frames free"
        );
        std::thread::sleep(Duration::from_millis(200));
    }
    let whole = client(&pair, "write", ["--iterations", "20"]);
    let _ = whole.run().success();
}
