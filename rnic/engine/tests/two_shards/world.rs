//! Two hosts and the link between them, in one thread, under virtual time.

use std::net::SocketAddr;
use std::time::Duration;

use rnic_engine::command::Command;
use rnic_ipc::control::{MarkerUse, MpaOptions, Transport};
use rnic_ipc::id::QpNum;
use rnic_xsk::{MemoryPort, Port};
use userspace_net::Instant;

use crate::allocations::counted;
use crate::capture::looked_at_clock;
use crate::impairment::Impairment;
use crate::link::Link;
use crate::side::{Side, SideConfig};

pub struct World<P: Port = MemoryPort> {
    pub a: Side<P>,
    pub b: Side<P>,
    pub a_to_b: Link,
    pub b_to_a: Link,
    pub now: Instant,
    /// Whether a, and whether b, asks for Markers in what it receives.
    pub markers: [bool; 2],
    /// Whether both ask for TCP segments that begin with FPDUs.
    pub aligned: bool,
    /// What the shards ask of the heap is counted.
    pub watched: bool,
    next_port: u16,
}

pub const PORT: u16 = 7174;

impl World {
    pub fn new(seed: u64, impairment: Impairment) -> Self {
        Self::with(
            seed,
            impairment,
            SideConfig::default(),
            SideConfig::default(),
            false,
        )
    }

    /// With interfaces of this MTU.
    pub fn of_mtu(seed: u64, impairment: Impairment, mtu: u32) -> Self {
        let (a, b) = (SideConfig::of_mtu(mtu), SideConfig::of_mtu(mtu));
        Self::with(seed, impairment, a, b, false)
    }

    pub fn with(seed: u64, impairment: Impairment, a: SideConfig, b: SideConfig, v6: bool) -> Self {
        Self::through(seed, impairment, a, b, v6, |port| port)
    }
}

impl<P: Port> World<P> {
    /// As [`World::with`], with what `wrap` makes of the hosts' ports.
    pub fn through(
        seed: u64,
        impairment: Impairment,
        a: SideConfig,
        b: SideConfig,
        v6: bool,
        wrap: impl Fn(MemoryPort) -> P,
    ) -> Self {
        let address = |last: u8| -> SocketAddr {
            let host = if v6 {
                format!("[2001:db8::{last}]")
            } else {
                format!("198.18.0.{last}")
            };
            format!("{host}:{PORT}").parse().unwrap()
        };
        Self {
            a: Side::through(1, address(1), a, &wrap),
            b: Side::through(2, address(2), b, &wrap),
            a_to_b: Link::new(seed * 2, impairment),
            b_to_a: Link::new(seed * 2 + 1, impairment),
            now: Instant::from_nanos(1_000_000),
            markers: [false; 2],
            aligned: false,
            watched: false,
            next_port: 40_000,
        }
    }

    /// The same with DDP over SCTP.
    pub fn over_sctp(mut self) -> Self {
        self.a.transport = Transport::Sctp;
        self.b.transport = Transport::Sctp;
        self
    }

    /// Lets both hosts work until nothing can be done without time going on.
    pub fn settle(&mut self) {
        loop {
            let mut worked = false;
            let (a, b) = (&mut self.a, &mut self.b);
            worked |= work(
                a,
                &mut self.a_to_b,
                &mut self.b_to_a,
                self.now,
                self.watched,
            );
            worked |= work(
                b,
                &mut self.b_to_a,
                &mut self.a_to_b,
                self.now,
                self.watched,
            );
            if !worked {
                return;
            }
        }
    }

    /// Goes on to the next moment at which something happens, or to `end`; false when that comes
    /// first.
    fn step_until(&mut self, end: Instant) -> bool {
        self.settle();
        let moments = [
            self.a_to_b.next(),
            self.b_to_a.next(),
            self.a.shard.next_deadline(),
            self.b.shard.next_deadline(),
        ];
        // Time goes on even if a deadline lies in the past, so that no test can stand still.
        let least = self.now + Duration::from_nanos(1);
        let next = moments
            .into_iter()
            .flatten()
            .min()
            .unwrap_or(end)
            .max(least);
        self.now = next.min(end);
        self.settle();
        next < end
    }

    /// One moment further.
    pub fn step(&mut self) {
        self.step_until(self.now + Duration::from_secs(3600));
    }

    /// Runs until `done`, for at most `limit` of virtual time.
    pub fn run_until(&mut self, limit: Duration, mut done: impl FnMut(&mut Self) -> bool) -> bool {
        let end = self.now + limit;
        self.settle();
        while !done(self) {
            if !self.step_until(end) {
                return done(self);
            }
        }
        true
    }

    pub fn run_for(&mut self, limit: Duration) {
        self.run_until(limit, |_| false);
    }

    /// Connects a new queue pair of `a` to a new one of `b`, which listens already or does now.
    pub fn connect(&mut self) -> (QpNum, QpNum) {
        let aligned = self.aligned;
        let [ours, theirs] = self.markers.map(|markers| MpaOptions {
            markers: MarkerUse::of_flag(markers),
            aligned,
            ..MpaOptions::default()
        });
        self.connect_as(ours, theirs)
    }

    pub fn connect_as(&mut self, ours: MpaOptions, theirs: MpaOptions) -> (QpNum, QpNum) {
        if self.next_port == 40_000 {
            self.b.listen(16, self.now);
        }
        let qp_a = self.start_connect(ours, b"hello");
        let qp_b = self.b.create_qp();
        assert!(
            self.run_until(Duration::from_secs(30), |w| {
                if let Some((request, _, data)) = w.b.take_request() {
                    assert_eq!(data, b"hello");
                    let private_data = b"welcome".to_vec();
                    let command = Command::Accept {
                        request,
                        qp: qp_b,
                        mpa: theirs,
                        private_data,
                    };
                    w.b.shard.execute(command, w.now).unwrap();
                }
                w.a.is_established(qp_a) && w.b.is_established(qp_b)
            }),
            "no connection: {:?} {:?}",
            self.a.events,
            self.b.events
        );
        (qp_a, qp_b)
    }

    pub fn start_connect(&mut self, mpa: MpaOptions, private_data: &[u8]) -> QpNum {
        self.next_port += 1;
        self.start_connect_from(self.next_port, mpa, private_data)
    }

    pub fn start_connect_from(&mut self, port: u16, mpa: MpaOptions, private_data: &[u8]) -> QpNum {
        let qp = self.a.create_qp();
        let path = self.a.path_to(&self.b);
        let remote = self.b.address;
        self.a
            .connect(qp, port, remote, path, mpa, private_data, self.now)
            .unwrap();
        qp
    }

    /// Every frame of both hosts is back in its pool.
    pub fn assert_no_frame_lost(&self) {
        for side in [&self.a, &self.b] {
            let levels = side.shard.levels();
            assert_eq!(levels.frames_free, side.frames, "{levels:?}");
        }
    }
}

/// One look of a host at its link and its work.
fn work<P: Port>(
    side: &mut Side<P>,
    out: &mut Link,
    inward: &mut Link,
    now: Instant,
    watched: bool,
) -> bool {
    let mut worked = false;
    if let Some(wire) = &side.wire {
        inward.give(wire, now);
        worked = counted(watched, || side.shard.poll_by(|| looked_at_clock(now)));
        out.take(wire, now);
    }
    side.collect();
    worked
}
