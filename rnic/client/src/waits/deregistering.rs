//! Regions that are deregistered, apart from the thread that asks.

use std::pin::Pin;
use std::sync::mpsc::{self, Receiver, Sender};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::task::{Context as Task, Poll, Waker};
use std::thread::Builder;
use std::time::Duration;

use rnic_ipc::threads;

use crate::error::Error;
use crate::memory::MemoryRegion;
use crate::wait::{Deadline, lock};

/// A region that is being deregistered: [`MemoryRegion::deregister`]. Await it, or [`wait`](Self::wait).
///
/// Dropping it takes nothing back.
///
/// # Errors
/// [`Error::DaemonGone`]: nobody touches the memory then either.
#[derive(Debug)]
#[must_use = "await this, or call `wait`, to learn when the RNIC has let go of the memory"]
pub struct Deregistering(Arc<Shared>);

#[derive(Debug, Default)]
struct Shared {
    outcome: Mutex<Outcome>,
    ended: Condvar,
}

#[derive(Debug, Default)]
struct Outcome {
    result: Option<Result<(), Error>>,
    waker: Option<Waker>,
}

/// The process's thread that gives regions back: which fork of the process began it, and the way to it.
static THREAD: Mutex<Option<(u64, Sender<Job>)>> = Mutex::new(None);

struct Job {
    region: MemoryRegion,
    shared: Arc<Shared>,
}

impl Job {
    fn run(self) {
        let result = self.region.give_back();
        let waker = {
            let mut outcome = lock(&self.shared.outcome);
            outcome.result = Some(result);
            outcome.waker.take()
        };
        self.shared.ended.notify_all();
        // With no lock held: it may run code of the program's.
        if let Some(waker) = waker {
            waker.wake();
        }
    }
}

/// Hands a job to the thread, which is begun if there is none; without one it is done here.
fn hand_over(job: Job) {
    let process = rnic_adopt::forks();
    let mut thread = lock(&THREAD);
    if thread
        .as_ref()
        .is_none_or(|(begun_by, _)| *begun_by != process)
    {
        let (jobs, waiting): (_, Receiver<Job>) = mpsc::channel();
        let builder = Builder::new().name("rnic-deregister".into());
        let begun = threads::spawn(builder, move || waiting.into_iter().for_each(Job::run));
        *thread = begun.ok().map(|_| (process, jobs));
    }
    let refused = match &*thread {
        Some((_, jobs)) => jobs.send(job).err().map(|refused| refused.0),
        None => Some(job),
    };
    drop(thread);
    if let Some(job) = refused {
        job.run();
    }
}

impl Deregistering {
    /// Blocks until the RNIC has let go of the region's memory.
    ///
    /// # Errors
    /// Those of [`Self`], and [`Error::Timeout`]: it goes on, and may be waited for again.
    pub fn wait(&mut self, timeout: Duration) -> Result<(), Error> {
        let deadline = Deadline::after(timeout);
        let mut outcome = lock(&self.0.outcome);
        loop {
            if let Some(result) = outcome.result.take() {
                return result;
            }
            let left = deadline
                .left()
                .ok_or_else(|| deadline.missed("the region's deregistration"))?;
            let waited = self.0.ended.wait_timeout(outcome, left);
            outcome = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
    }
}

impl Future for Deregistering {
    type Output = Result<(), Error>;

    fn poll(self: Pin<&mut Self>, task: &mut Task<'_>) -> Poll<Self::Output> {
        let waker = task.waker().clone();
        let (result, _earlier) = {
            let mut outcome = lock(&self.0.outcome);
            let earlier = outcome.waker.replace(waker);
            (outcome.result.take(), earlier)
        };
        result.map_or(Poll::Pending, Poll::Ready)
    }
}

impl MemoryRegion {
    /// Deregisters the region, in a thread of this crate's: where nothing may block, use this instead of dropping it.
    pub fn deregister(self) -> Deregistering {
        let shared = Arc::<Shared>::default();
        hand_over(Job {
            region: self,
            shared: shared.clone(),
        });
        Deregistering(shared)
    }
}
