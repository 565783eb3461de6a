//! A shard with its clock and its stamps.

use std::time::Duration;

use rnic_engine::command::{Answer, Command, CommandError};
use rnic_engine::shard::Shard;
use rnic_host::ports::Stamp;
use rnic_ipc::id::{ClientId, QpNum};
use rnic_xsk::Port;
use rustix::time::{ClockId, clock_gettime};
use userspace_net::Instant;

use super::ShardMessage;

/// A shard is quiet when this many polls in a row found nothing to do ...
const QUIET_POLLS: u32 = 20;
/// ... with this pause between them.
const QUIET_PAUSE: Duration = Duration::from_micros(200);

pub(crate) type SendEvent<'a> = &'a mut dyn FnMut(ShardMessage);

/// How long a shard that is to end may go on.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Patience {
    /// Until it is quiet.
    pub(crate) quiet: Duration,
    /// Until no peer is likely to ask again for the acknowledgment of its FIN.
    pub(crate) linger: Duration,
}

/// A shard over any kind of port, as its driver sees it.
pub(crate) trait Drive: Send + std::fmt::Debug {
    /// Carries out a command. Events that were made before are sent first, so that stamps are in order.
    fn execute(
        &mut self,
        command: Command,
        send: SendEvent<'_>,
    ) -> (Result<Answer, CommandError>, Stamp);

    /// Polls once, and sends the events. Returns whether there was work.
    fn poll(&mut self, send: SendEvent<'_>) -> bool;

    /// Sends what the client has just posted ([`Shard::transmit_posted`]).
    fn transmit_posted(&mut self, client: ClientId, qp: QpNum) -> bool;

    fn drain(&mut self, send: SendEvent<'_>);

    /// Polls until the shard is quiet and no peer is likely to ask again for the last acknowledgment, or
    /// `patience` is over.
    fn quiesce(&mut self, patience: Patience, send: SendEvent<'_>);
}

/// A shard with its clock and its stamps.
#[derive(Debug)]
pub(crate) struct Engine<P> {
    shard: Shard<P>,
    /// The shard's, among those of its device.
    number: u8,
    clock: Clock,
    /// Commands executed and events made.
    count: u64,
}

/// The shard's time. It is read before each command and each poll, so it takes one call and one subtraction.
#[derive(Clone, Copy, Debug)]
struct Clock {
    /// What the host's clock showed at time zero, in nanoseconds.
    zero: u64,
}

impl Clock {
    fn since(zero: std::time::Instant) -> Self {
        // 2^64 ns are 584 years.
        let elapsed = zero.elapsed().as_nanos() as u64;
        Self {
            zero: monotonic().saturating_sub(elapsed),
        }
    }

    #[inline]
    fn now(self) -> Instant {
        Instant::from_nanos(monotonic().saturating_sub(self.zero))
    }
}

/// The host's clock that [`std::time::Instant`] shows too, in nanoseconds.
#[inline]
fn monotonic() -> u64 {
    let now = clock_gettime(ClockId::Monotonic);
    // Neither is ever negative.
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}

impl<P: Port> Engine<P> {
    /// `number`: the shard's among those of its device. `zero` is its time zero.
    pub(crate) fn new(shard: Shard<P>, number: u8, zero: std::time::Instant) -> Self {
        Self {
            shard,
            number,
            clock: Clock::since(zero),
            count: 0,
        }
    }

    /// The shard's number among those of its device.
    pub(crate) fn number(&self) -> u8 {
        self.number
    }

    pub(crate) fn ports(&self) -> &[P] {
        self.shard.ports()
    }

    /// The shard itself, to put it to sleep.
    pub(crate) fn shard(&mut self) -> &mut Shard<P> {
        &mut self.shard
    }

    /// How long until the shard must be polled even if nothing comes.
    pub(crate) fn patience(&mut self) -> Option<Duration> {
        let now = self.now();
        Some(self.shard.next_deadline()?.saturating_duration_since(now))
    }

    fn now(&self) -> Instant {
        self.clock.now()
    }

    fn next_stamp(&mut self) -> Stamp {
        self.count += 1;
        Stamp {
            shard: self.number,
            count: self.count,
        }
    }
}

impl<P: Port + Send + std::fmt::Debug> Drive for Engine<P> {
    fn execute(
        &mut self,
        command: Command,
        send: SendEvent<'_>,
    ) -> (Result<Answer, CommandError>, Stamp) {
        self.drain(send);
        let now = self.now();
        let answer = self.shard.execute(command, now);
        (answer, self.next_stamp())
    }

    fn poll(&mut self, send: SendEvent<'_>) -> bool {
        let clock = self.clock;
        let worked = self.shard.poll_by(|| clock.now());
        // Most polls make no events, and cost no more than this test.
        if self.shard.has_events() {
            self.drain(send);
        }
        worked
    }

    fn transmit_posted(&mut self, client: ClientId, qp: QpNum) -> bool {
        let clock = self.clock;
        self.shard.transmit_posted(client, qp, || clock.now())
    }

    fn drain(&mut self, send: SendEvent<'_>) {
        while let Some(event) = self.shard.poll_event() {
            let stamp = self.next_stamp();
            send(ShardMessage { event, stamp });
        }
    }

    fn quiesce(&mut self, patience: Patience, send: SendEvent<'_>) {
        let begun = std::time::Instant::now();
        let mut quiet = 0;
        loop {
            let lasted = begun.elapsed();
            let unquiet = quiet < QUIET_POLLS && lasted < patience.quiet;
            let lingers =
                || lasted < patience.linger && !self.shard.linger(self.clock.now()).is_zero();
            if !unquiet && !lingers() {
                return;
            }
            let worked = self.poll(send);
            quiet = if worked { 0 } else { quiet + 1 };
            if !worked {
                std::thread::sleep(QUIET_PAUSE);
            }
        }
    }
}
