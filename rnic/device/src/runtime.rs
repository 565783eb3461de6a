//! The shards of a device, and how commands reach the right ones: those about one object go to the shard that has it,
//! others to all.
//!
//! What all shards are to do they do at the same time, each for itself. It is done when the last has answered.

pub(crate) mod counters;
pub(crate) mod driver;
mod placement;
mod watch;

use std::sync::{Mutex, MutexGuard};

use crossbeam::channel::Receiver;
use rnic_engine::command::{Answer, Command};
use rnic_engine::shard::shard_of;
use rnic_host::ports::Stamp;
use rnic_ipc::control::{Refusal, RefusalCode};
use rnic_ipc::id::{ConnRequestId, QpNum};

use crate::Polling;
use crate::refuse;
use crate::runtime::driver::{Done, Driver, Patience, ShardMessage, Stopped};
use crate::sync::lock;

pub(crate) use placement::Placement;
pub(crate) use watch::WATCH_INTERVAL;
use watch::Watch;

/// The number of the first shard. It has what is in no other: connections within this host, and shared receive queues
/// with their queue pairs.
pub(crate) const FIRST: usize = 0;

pub(crate) type Executed = Result<(Answer, Stamp), Refusal>;

/// The shard that a command is for.
#[derive(Clone, Copy, Debug)]
pub(crate) enum To {
    Shard(usize),
    Qp(QpNum),
    Request(ConnRequestId),
}

#[derive(Debug)]
pub(crate) struct Shards {
    /// At least one.
    drivers: Box<[Driver]>,
    events: Receiver<ShardMessage>,
    placement: Mutex<Placement>,
    watch: Watch,
}

impl Shards {
    /// The shards that these run. `events`: their events.
    pub(crate) fn new(drivers: Vec<Driver>, events: Receiver<ShardMessage>) -> Self {
        Self {
            placement: Mutex::new(Placement::new(drivers.len())),
            watch: Watch::new(drivers.len()),
            drivers: drivers.into(),
            events,
        }
    }

    pub(crate) fn count(&self) -> usize {
        self.drivers.len()
    }

    pub(crate) fn are_several(&self) -> bool {
        self.count() > 1
    }

    pub(crate) fn drivers(&self) -> &[Driver] {
        &self.drivers
    }

    pub(crate) fn first(&self) -> &Driver {
        &self.drivers[FIRST]
    }

    pub(crate) fn placement(&self) -> MutexGuard<'_, Placement> {
        lock(&self.placement)
    }

    /// Checks that the threads of all make progress, and logs when one does not. Once per [`WATCH_INTERVAL`].
    pub(crate) fn watch(&self, interface: &str) {
        if self.are_threaded() {
            let beats = self.drivers.iter().map(Driver::beat);
            self.watch
                .check(beats, |shard, change| change.log(interface, shard));
        }
    }

    /// How many make no progress.
    pub(crate) fn stalled(&self) -> u32 {
        self.watch.stalled()
    }

    /// Whether threads run them.
    pub(crate) fn are_threaded(&self) -> bool {
        self.first().is_threaded()
    }

    /// Their events. The channel ends when all have stopped.
    pub(crate) fn events(&self) -> &Receiver<ShardMessage> {
        &self.events
    }

    /// Has one shard carry out a command that was granted.
    pub(crate) fn run(&self, to: To, command: Command) -> Executed {
        let driver = self.drivers.get(self.shard_of(to)).ok_or(Stopped);
        executed(driver.and_then(|driver| driver.execute(command)))
    }

    /// Has one shard carry out a command without waiting; it may be lost when too many wait.
    pub(crate) fn post(&self, to: To, command: Command) {
        if let Some(driver) = self.drivers.get(self.shard_of(to)) {
            driver.post(command);
        }
    }

    /// Has all shards carry out a command that `make` makes for each: the results, by the shards' numbers.
    pub(crate) fn run_all(&self, make: impl FnMut() -> Command) -> Vec<Executed> {
        self.run_each(std::iter::repeat_with(make))
    }

    /// Has each shard carry out its own of these commands, by the shards' numbers.
    pub(crate) fn run_each(&self, commands: impl IntoIterator<Item = Command>) -> Vec<Executed> {
        let both = self.drivers.iter().zip(commands);
        let given: Vec<_> = both
            .map(|(driver, command)| driver.begin(command))
            .collect();
        let done = given.into_iter().map(|pending| executed(pending.wait()));
        done.collect()
    }

    /// Has all shards but one carry out a command that `make` makes for each. It can't be refused.
    pub(crate) fn others_do(&self, shard: usize, make: impl Fn() -> Command) {
        let others = self.drivers.iter().enumerate();
        let others = others.filter(|(number, _)| *number != shard);
        let given: Vec<_> = others.map(|(_, driver)| driver.begin(make())).collect();
        for pending in given {
            // One that has stopped has nothing to change.
            let _ = pending.wait();
        }
    }

    /// As [`Self::run_all`], for commands of which only the first refusal matters.
    pub(crate) fn all_do(&self, make: impl FnMut() -> Command) -> Result<(), Refusal> {
        let results = self.run_all(make);
        results.into_iter().try_for_each(|done| done.map(|_| ()))
    }

    /// Has each shard carry out its own of these commands, by the shards' numbers, or none: where one refuses, the
    /// others carry out what `undo` makes. The stamps.
    pub(crate) fn all_or_none(
        &self,
        commands: impl IntoIterator<Item = Command>,
        mut undo: impl FnMut() -> Command,
    ) -> Result<Vec<Stamp>, Refusal> {
        let mut stamps = Vec::with_capacity(self.count());
        let mut refused = None;
        for done in self.run_each(commands) {
            match done {
                Ok((_, stamp)) => stamps.push(stamp),
                Err(refusal) => refused = refused.or(Some(refusal)),
            }
        }
        let Some(refusal) = refused else {
            return Ok(stamps);
        };
        for stamp in stamps {
            // One that has stopped has nothing left to undo.
            let _ = self.run(To::Shard(stamp.shard.into()), undo());
        }
        Err(refusal)
    }

    /// Has all shards carry out a command without waiting; `false` when too many wait at one of them.
    pub(crate) fn try_post_all(&self, make: impl Fn() -> Command) -> bool {
        let taken = self.drivers.iter().map(|driver| driver.try_post(make()));
        taken.fold(true, |all, taken| all & taken)
    }

    /// The number of the shard that has an object.
    pub(crate) fn shard_of(&self, to: To) -> usize {
        match to {
            To::Shard(shard) => shard,
            To::Qp(qp) => self.placement().shard_of(qp),
            To::Request(request) => {
                let moved = self.placement().moved_request(request);
                moved.unwrap_or_else(|| shard_of(request).min(self.count() - 1))
            }
        }
    }

    /// Brings a connection request and a queue pair that is Idle together; the number of the shard that then has both.
    /// The queue pair goes to the request, unless it takes its receives from a shared queue: then the request comes.
    ///
    /// # Errors
    ///
    /// `WrongState` when one of them can't be moved, `UnknownObject` when the request is gone.
    pub(crate) fn bring_together(
        &self,
        request: ConnRequestId,
        qp: QpNum,
    ) -> Result<usize, Refusal> {
        let (from, to) = (
            self.shard_of(To::Request(request)),
            self.shard_of(To::Qp(qp)),
        );
        if from == to || !self.placement().is_pinned(qp) {
            self.bring(qp, from)?;
            return Ok(from);
        }
        // There are fewer than 256.
        let take = Command::TakeRequest {
            request,
            to: to as u8,
        };
        let (Answer::Request(taken), _) = self.run(To::Shard(from), take)? else {
            return Err(refuse::host(
                "a connection request's move",
                "another answer came",
            ));
        };
        self.placement().request_moved(request, to);
        self.run(To::Shard(to), Command::PutRequest(taken))?;
        Ok(to)
    }

    /// Brings a queue pair that is Idle to a shard, unless it is there.
    ///
    /// # Errors
    ///
    /// `WrongState` when it is not Idle, or takes its receives from a shared queue, which is in another shard.
    pub(crate) fn bring(&self, qp: QpNum, to: usize) -> Result<(), Refusal> {
        let from = self.placement().shard_of(qp);
        if from == to {
            return Ok(());
        }
        if self.placement().is_pinned(qp) {
            return Err(refuse::refusal(
                RefusalCode::WrongState,
                &format!(
                    "queue pair {qp} asked for a connection of shard {to}, but its shared receive queue is in shard \
                     {from}: use one with receives of its own"
                ),
            ));
        }
        let (Answer::Qp(taken), _) = self.run(To::Shard(from), Command::TakeQp { qp })? else {
            return Err(refuse::host("a queue pair's move", "another answer came"));
        };
        // Before the other shard looks for what was posted (`rnic_ipc::ring::QpShard`).
        self.placement().moved(qp, to);
        self.run(To::Shard(to), Command::PutQp(taken)).map(|_| ())
    }

    /// Has the shard of a queue pair forget it, and the others that it is one of its domain's streams.
    pub(crate) fn remove_qp(&self, qp: QpNum) -> Result<(), Refusal> {
        let removed = self.run(To::Qp(qp), Command::RemoveQp { qp });
        let removed_from = self.placement().removed(qp);
        if let Some((shard, pd)) = removed_from {
            self.others_do(shard, || Command::RemoveStream { pd, qp });
        }
        removed.map(|_| ())
    }

    /// What the shards' threads do from now on while they have nothing to do.
    pub(crate) fn set_polling(&self, polling: Polling) -> Result<(), Refusal> {
        let mut drivers = self.drivers.iter();
        let set = drivers.try_for_each(|driver| driver.set_polling(polling));
        set.map_err(|Stopped| refuse::shutting_down())
    }

    /// Lets all poll until they are quiet and no peer waits for them, `patience` at most, and ends them.
    pub(crate) fn stop(&self, patience: Patience) {
        for driver in &self.drivers {
            driver.begin_stopping(patience);
        }
        for driver in &self.drivers {
            driver.join();
        }
    }
}

fn executed(done: Done) -> Executed {
    let (answer, stamp) = done.map_err(|Stopped| refuse::shutting_down())?;
    answer
        .map(|answer| (answer, stamp))
        .map_err(refuse::command)
}

/// The shard's own tables differ from the PRM's: a bug, or the shard has ended.
pub(crate) fn log_refusal<T>(what: &str, result: Result<T, Refusal>) {
    if let Err(refusal) = result {
        log::debug!("{what} can't be changed: {refusal}");
    }
}

/// Connections of all shards in one order: each shard's own numbers, in a range for each.
pub(crate) mod connections {
    /// No shard has so many connections.
    const RANGE_BITS: u32 = 26;

    /// The number of a connection, or of where to go on, by which all shards' are told apart.
    pub(crate) fn number(shard: usize, own: u32) -> u32 {
        (shard as u32) << RANGE_BITS | own
    }

    /// The shard of a number, and the shard's own one.
    pub(crate) fn parts(number: u32) -> (usize, u32) {
        let shard = (number >> RANGE_BITS) as usize;
        (shard, number & ((1 << RANGE_BITS) - 1))
    }

    #[cfg(test)]
    mod tests {
        #[test]
        fn a_number_has_its_shard_and_the_shards_own_one() {
            for shard in [0, 1, 15] {
                for own in [0, 1, 2, (1 << super::RANGE_BITS) - 1] {
                    assert_eq!(super::parts(super::number(shard, own)), (shard, own));
                }
            }
        }
    }
}
