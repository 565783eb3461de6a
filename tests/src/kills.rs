//! Programs that are killed at any moment, and what they must leave behind: nothing.

use std::time::{Duration, Instant};

use crate::daemon::Daemon;
use crate::footprint::Footprint;
use crate::lab::{Command, Process};
use crate::pattern::Pattern;
use crate::wait;

/// How soon the other side must know, and everything be as it was. What was half open is waited for longest.
const SOON: Duration = Duration::from_secs(90);
/// How long each of the first programs lives, which make what is made once.
const FIRST: Duration = Duration::from_millis(500);
/// What moves bytes each way.
const OPERATIONS: [&str; 3] = ["write", "send", "read"];

/// Where a server and its clients of `rnic-perf` are killed.
pub trait Ground {
    fn server(&self) -> Process;

    /// A client that moves bytes by an operation, for as long as two further arguments say.
    fn client(&self, operation: &str, length: [&str; 2]) -> Command;

    /// What of the daemons is in use.
    fn held(&self) -> Held;

    /// Panics when a daemon has ended.
    fn assert_alive(&mut self);
}

/// What of all daemons is in use.
#[derive(Debug)]
pub struct Held {
    footprints: Vec<Footprint>,
    live_connections: usize,
    /// Of each interface. The least there can be at the start: the fill ring is full then, later it varies by a batch.
    free_frames: Vec<u64>,
}

impl Held {
    /// Of some daemons, with the free frames of each of their interfaces.
    #[must_use]
    pub fn of(daemons: &[&Daemon], free_frames: Vec<u64>) -> Self {
        Self {
            footprints: daemons.iter().map(|daemon| Footprint::of(daemon)).collect(),
            live_connections: daemons.iter().map(|d| d.live_connections()).sum(),
            free_frames,
        }
    }

    fn is_back_at(&self, before: &Self) -> bool {
        let footprints = self.footprints.iter().zip(&before.footprints);
        let frames = self.free_frames.iter().zip(&before.free_frames);
        footprints
            .into_iter()
            .all(|(now, then)| now.is_back_at(then))
            && frames.into_iter().all(|(now, then)| now >= then)
    }
}

/// Who is killed, and when.
#[derive(Clone, Copy, Debug)]
pub struct Kills {
    /// How many, without `RNIC_TEST_KILLS`.
    pub count: u64,
    /// The latest moment of a client's life: some are not connected by then, and some have sent for a while.
    pub latest: Duration,
    /// The server is killed every other time, not the client.
    pub servers_too: bool,
}

impl Kills {
    /// Kills them. Whoever is left ends too and says why; the daemons hold what they held before, in every table, and no
    /// descriptor, thread or mapping more; and they go on serving. `RNIC_TEST_FIRST_SEED` kills at the same moments.
    ///
    /// # Panics
    ///
    /// When anything of that does not hold.
    pub fn leave_nothing_behind(self, ground: &mut impl Ground) {
        let free_frames = ground.held().free_frames;
        let mut server = ground.server();
        // These are killed too: what ends in order stands in TIME-WAIT.
        for operation in OPERATIONS {
            let mut first = ground.client(operation, ["--duration", "3600"]).spawn();
            std::thread::sleep(FIRST);
            first.kill();
        }
        wait::until("all who were killed first are gone", SOON, || {
            (ground.held().live_connections == 0).then_some(())
        });
        // What ends with a connection, and a moment later.
        std::thread::sleep(Duration::from_secs(1));
        let before = Held {
            free_frames,
            ..ground.held()
        };

        let seed = number("RNIC_TEST_FIRST_SEED").unwrap_or(std::process::id().into());
        let kills = number("RNIC_TEST_KILLS").unwrap_or(self.count);
        println!("{kills} kills; RNIC_TEST_FIRST_SEED={seed} kills at the same moments again");
        let mut random = Pattern::new(seed);
        for kill in 0..kills {
            let operation = OPERATIONS[(random.next_u64() % 3) as usize];
            let age = random.next_u64() % self.latest.as_micros() as u64;
            let mut client = ground.client(operation, ["--duration", "3600"]).spawn();
            std::thread::sleep(Duration::from_micros(age));
            if self.servers_too && kill % 2 == 1 {
                server.kill();
                let says = client.finish(SOON).failure();
                assert!(!says.is_empty(), "the client does not say why it ends");
                server = ground.server();
            } else {
                client.kill();
            }
            ground.assert_alive();
        }
        assert!(server.running(), "the server ended: {}", server.stderr());

        let deadline = Instant::now() + SOON;
        loop {
            let after = ground.held();
            if after.is_back_at(&before) {
                break;
            }
            assert!(
                Instant::now() < deadline,
                "before: {before:#?}\nafter: {after:#?}"
            );
            std::thread::sleep(Duration::from_millis(200));
        }
        let whole = ground.client("write", ["--iterations", "20"]);
        let _ = whole.run().success();
    }
}

fn number(name: &str) -> Option<u64> {
    let number = std::env::var(name).ok()?;
    Some(number.parse().expect("a number"))
}
