//! Who runs a shard, and how commands reach it.
//!
//! Either its own thread, to which commands go by a bounded channel, or the caller of
//! [`Driver::drive`]. In both cases the shard's events come out as [`ShardMessage`], stamped in the order in which the
//! shard executed commands and made events. The shards of a device share one channel.

mod beat;
mod contention;
mod engine;
mod kicks;
mod thread;

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, TryLockError};

use crossbeam::channel::{Receiver, Sender};
use rnic_engine::command::{Answer, Command, CommandError, ShardEvent};
use rnic_host::ports::Stamp;
use rnic_ipc::id::{ClientId, QpNum};
use rnic_xsk::Port;

pub(crate) use beat::{Beat, Seen};
pub(crate) use engine::{Drive, Engine, Patience};
pub(crate) use kicks::Kicks;
pub(super) use thread::thread_name;

use crate::Polling;
use crate::sync::lock;

/// Events that wait to be handled; beyond it the shard's thread waits.
const EVENTS_MAX: usize = 1024;

/// An event of a shard, and when it was made.
#[derive(Debug)]
pub(crate) struct ShardMessage {
    pub(crate) event: ShardEvent,
    pub(crate) stamp: Stamp,
}

/// The shard does not run any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the RNIC is shutting down")]
pub(crate) struct Stopped;

/// The result of a command, and when it was done.
pub(crate) type Reply = (Result<Answer, CommandError>, Stamp);

/// The same of a shard that may have stopped.
pub(crate) type Done = Result<Reply, Stopped>;

/// The channel for events of shards that run in threads.
pub(crate) fn event_channel() -> (Sender<ShardMessage>, Receiver<ShardMessage>) {
    crossbeam::channel::bounded(EVENTS_MAX)
}

/// How a thread runs its shard.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ThreadConfig {
    /// The processor that it stays on.
    pub(crate) core: Option<u32>,
    pub(crate) polling: Polling,
    pub(crate) seccomp: bool,
}

/// Runs a shard.
#[derive(Debug)]
pub(crate) struct Driver {
    runner: Runner,
    kicks: Arc<Kicks>,
    /// Stands still where no thread runs the shard.
    beat: Beat,
}

/// A command that the shard has been given.
#[derive(Debug)]
pub(crate) enum Pending {
    /// A thread carries it out.
    Given(Receiver<Reply>),
    /// It is done, or the shard has stopped.
    Done(Box<Done>),
}

impl Pending {
    /// Waits until it is done.
    pub(crate) fn wait(self) -> Done {
        match self {
            Self::Given(answer) => answer.recv().map_err(|_| Stopped),
            Self::Done(done) => *done,
        }
    }
}

#[derive(Debug)]
enum Runner {
    Threaded(thread::Handle),
    Inline {
        engine: Mutex<Option<Box<dyn Drive>>>,
        events: EventSender,
    },
}

/// Takes the events of an inline shard.
#[derive(Debug)]
struct EventSender {
    channel: Sender<ShardMessage>,
    /// The channel may not be empty: cheaper to read than the channel.
    some: AtomicBool,
}

impl EventSender {
    fn send(&self, message: ShardMessage) {
        drop(self.channel.send(message));
        self.some.store(true, Ordering::Release);
    }
}

impl Driver {
    /// Starts a thread that polls until [`Driver::begin_stopping`].
    pub(crate) fn threaded<P: Port + Send + std::fmt::Debug + 'static>(
        engine: Engine<P>,
        events: Sender<ShardMessage>,
        config: ThreadConfig,
    ) -> std::io::Result<Self> {
        let kicks = Arc::new(Kicks::new()?);
        let beat = Beat::default();
        let shared = (kicks.clone(), beat.clone());
        let handle = thread::start(engine, shared, events, config)?;
        Ok(Self {
            runner: Runner::Threaded(handle),
            kicks,
            beat,
        })
    }

    /// Leaves polling to [`Driver::drive`]. The channel has the shard's events.
    pub(crate) fn inline(
        engine: Box<dyn Drive>,
    ) -> std::io::Result<(Self, Receiver<ShardMessage>)> {
        let kicks = Arc::new(Kicks::new()?);
        // The thread that drives also handles events, so a full channel could not be waited for.
        let (channel, events) = crossbeam::channel::unbounded();
        let engine = Mutex::new(Some(engine));
        let driver = Self {
            runner: Runner::Inline {
                engine,
                events: EventSender {
                    channel,
                    some: AtomicBool::new(false),
                },
            },
            kicks,
            beat: Beat::default(),
        };
        Ok((driver, events))
    }

    /// Whether a thread runs the shard.
    pub(crate) fn is_threaded(&self) -> bool {
        matches!(self.runner, Runner::Threaded(_))
    }

    /// Counts the iterations of the shard's thread.
    pub(crate) fn beat(&self) -> &Beat {
        &self.beat
    }

    /// The kicks of the clients, watched while the shard sleeps.
    pub(crate) fn kicks(&self) -> &Kicks {
        &self.kicks
    }

    /// Whether an inline shard may have made events since the last call.
    #[inline]
    pub(crate) fn has_events(&self) -> bool {
        match &self.runner {
            Runner::Threaded(_) => false,
            // Read before it is written: it hardly ever has.
            Runner::Inline { events, .. } => {
                events.some.load(Ordering::Relaxed) && events.some.swap(false, Ordering::Acquire)
            }
        }
    }

    /// Has the shard carry out a command, and waits for it.
    pub(crate) fn execute(&self, command: Command) -> Done {
        self.begin(command).wait()
    }

    /// Gives the shard a command to carry out; waits only while too many others do.
    pub(crate) fn begin(&self, command: Command) -> Pending {
        match &self.runner {
            Runner::Threaded(handle) => match handle.begin(command) {
                Ok(answer) => Pending::Given(answer),
                Err(stopped) => Pending::Done(Box::new(Err(stopped))),
            },
            Runner::Inline { engine, events } => {
                let done = lock(engine).as_mut().ok_or(Stopped).map(|engine| {
                    let mut send = |message| events.send(message);
                    let done = engine.execute(command, &mut send);
                    engine.drain(&mut send);
                    done
                });
                Pending::Done(Box::new(done))
            }
        }
    }

    /// Has the shard carry out a command without waiting; it may be lost when too many wait.
    pub(crate) fn post(&self, command: Command) {
        match &self.runner {
            Runner::Threaded(handle) => handle.post(command),
            Runner::Inline { .. } => drop(self.execute(command)),
        }
    }

    /// Has the shard carry out a command without waiting; `false` when too many wait.
    pub(crate) fn try_post(&self, command: Command) -> bool {
        match &self.runner {
            Runner::Threaded(handle) => handle.try_post(command),
            Runner::Inline { .. } => self.execute(command).is_ok(),
        }
    }

    /// What the shard's thread does from now on while it has nothing to do.
    pub(crate) fn set_polling(&self, polling: Polling) -> Result<(), Stopped> {
        match &self.runner {
            Runner::Threaded(handle) => handle.set_polling(polling),
            Runner::Inline { .. } => Ok(()),
        }
    }

    /// Polls the shard once, when no thread does. Returns whether there was work.
    pub(crate) fn drive(&self) -> bool {
        match &self.runner {
            Runner::Threaded(_) => false,
            Runner::Inline { engine, events } => {
                let mut engine = lock(engine);
                let Some(engine) = engine.as_mut() else {
                    return false;
                };
                engine.poll(&mut |message| events.send(message))
            }
        }
    }

    /// Has the shard send what the client has just posted to this queue pair, unless a thread runs it, at this moment
    /// or always. Returns whether it took the work; else the doorbell is to be rung. Events that result come out by
    /// the next call of [`Self::drive`].
    pub(crate) fn transmit_posted(&self, client: ClientId, qp: QpNum) -> bool {
        let Runner::Inline { engine, .. } = &self.runner else {
            return false;
        };
        let mut engine = match engine.try_lock() {
            Ok(engine) => engine,
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
            Err(TryLockError::WouldBlock) => return false,
        };
        let engine = engine.as_mut();
        engine.is_some_and(|engine| engine.transmit_posted(client, qp))
    }

    /// Has the shard poll until it is quiet and no peer waits for it, `patience` at most, and end then. An inline one
    /// has ended when this returns, another by [`Self::join`].
    pub(crate) fn begin_stopping(&self, patience: Patience) {
        match &self.runner {
            Runner::Threaded(handle) => handle.begin_stopping(patience),
            Runner::Inline { engine, events } => {
                if let Some(mut engine) = lock(engine).take() {
                    engine.quiesce(patience, &mut |message| events.send(message));
                }
            }
        }
    }

    /// Waits for the end of a shard that is being stopped.
    pub(crate) fn join(&self) {
        if let Runner::Threaded(handle) = &self.runner {
            handle.join();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::engine::SendEvent;
    use super::*;

    /// A shard that only ends; whether it was let become quiet.
    #[derive(Debug)]
    struct Ending(Arc<AtomicBool>);

    impl Drive for Ending {
        fn execute(
            &mut self,
            command: Command,
            _: SendEvent<'_>,
        ) -> (Result<Answer, CommandError>, Stamp) {
            panic!("{command:?}")
        }

        fn poll(&mut self, _: SendEvent<'_>) -> bool {
            false
        }

        fn transmit_posted(&mut self, _: ClientId, _: QpNum) -> bool {
            false
        }

        fn drain(&mut self, _: SendEvent<'_>) {}

        fn quiesce(&mut self, _: Patience, _: SendEvent<'_>) {
            self.0.store(true, Ordering::Relaxed);
        }
    }

    #[test]
    fn an_inline_shard_becomes_quiet_and_then_there_is_none() {
        let quiet = Arc::new(AtomicBool::new(false));
        let (driver, _events) = Driver::inline(Box::new(Ending(quiet.clone()))).unwrap();
        driver.begin_stopping(Patience::default());
        assert!(quiet.load(Ordering::Relaxed));
        assert!(matches!(
            driver.execute(Command::QueryCounters),
            Err(Stopped)
        ));
    }
}
