//! Who runs a shard, and how commands reach it.
//!
//! Either a thread of its own, to which commands go by a bounded channel, or whoever calls
//! [`Driver::drive`]. In both cases what the shard tells comes out as [`Told`], stamped in the
//! order in which the shard did and said things. The shards of a device tell by one channel.

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

use crate::Polling;
use crate::sync::lock;

/// Things told that wait for whoever handles them; beyond it the shard thread waits.
const TOLD_MAX: usize = 1024;

/// What a shard told, and when.
#[derive(Debug)]
pub(crate) struct Told {
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

/// The channel by which shards that run in threads tell.
pub(crate) fn telling() -> (Sender<Told>, Receiver<Told>) {
    crossbeam::channel::bounded(TOLD_MAX)
}

/// How a thread runs its shard.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Manner {
    /// The processor that it stays on.
    pub(crate) core: Option<u32>,
    pub(crate) polling: Polling,
    /// With a seccomp filter.
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
        told: Teller,
    },
}

/// What an inline shard tells goes by this.
#[derive(Debug)]
struct Teller {
    told: Sender<Told>,
    /// Something may be in the channel: cheaper to look at than that.
    some: AtomicBool,
}

impl Teller {
    fn tell(&self, item: Told) {
        drop(self.told.send(item));
        self.some.store(true, Ordering::Release);
    }
}

impl Driver {
    /// Starts a thread that polls until [`Driver::begin_stopping`].
    pub(crate) fn threaded<P: Port + Send + std::fmt::Debug + 'static>(
        engine: Engine<P>,
        told: Sender<Told>,
        manner: Manner,
    ) -> std::io::Result<Self> {
        let kicks = Arc::new(Kicks::new()?);
        let beat = Beat::default();
        let shared = (kicks.clone(), beat.clone());
        let handle = thread::start(engine, shared, told, manner)?;
        Ok(Self {
            runner: Runner::Threaded(handle),
            kicks,
            beat,
        })
    }

    /// Leaves polling to [`Driver::drive`]. What the shard tells comes by the channel.
    pub(crate) fn inline(engine: Box<dyn Drive>) -> std::io::Result<(Self, Receiver<Told>)> {
        let kicks = Arc::new(Kicks::new()?);
        // Whoever drives also takes what is told, so the channel can't be waited for.
        let (sender, told) = crossbeam::channel::unbounded();
        let engine = Mutex::new(Some(engine));
        let driver = Self {
            runner: Runner::Inline {
                engine,
                told: Teller {
                    told: sender,
                    some: AtomicBool::new(false),
                },
            },
            kicks,
            beat: Beat::default(),
        };
        Ok((driver, told))
    }

    /// Whether a thread runs the shard.
    pub(crate) fn is_threaded(&self) -> bool {
        matches!(self.runner, Runner::Threaded(_))
    }

    /// Whether the shard's thread goes on.
    pub(crate) fn beat(&self) -> &Beat {
        &self.beat
    }

    /// The kicks of the clients, watched while the shard sleeps.
    pub(crate) fn kicks(&self) -> &Kicks {
        &self.kicks
    }

    /// Whether an inline shard may have told something since this was asked the last time.
    #[inline]
    pub(crate) fn has_told(&self) -> bool {
        match &self.runner {
            Runner::Threaded(_) => false,
            // Read before it is written: it hardly ever has.
            Runner::Inline { told, .. } => {
                told.some.load(Ordering::Relaxed) && told.some.swap(false, Ordering::Acquire)
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
            Runner::Inline { engine, told } => {
                let done = lock(engine).as_mut().ok_or(Stopped).map(|engine| {
                    let mut tell = |item| told.tell(item);
                    let done = engine.execute(command, &mut tell);
                    engine.drain(&mut tell);
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

    /// Polls the shard once, when no thread does; says whether there was work.
    pub(crate) fn drive(&self) -> bool {
        match &self.runner {
            Runner::Threaded(_) => false,
            Runner::Inline { engine, told } => {
                let mut engine = lock(engine);
                let Some(engine) = engine.as_mut() else {
                    return false;
                };
                engine.poll(&mut |item| told.tell(item))
            }
        }
    }

    /// Has the shard send what the client has just posted to this queue pair, when no thread runs it and nobody
    /// else does at this moment. Returns whether it took the work; else the doorbell is to be rung. Events that
    /// result are told by the next call of [`Self::drive`].
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
            Runner::Inline { engine, told } => {
                if let Some(mut engine) = lock(engine).take() {
                    engine.quiesce(patience, &mut |item| told.tell(item));
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
