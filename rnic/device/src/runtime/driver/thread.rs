//! The shard's own thread: polls while there is work, and without any as [`Polling`] says; sleeps in
//! poll(2) until a frame, a kick, a command or a deadline comes.
//!
//! It holds no lock while it polls, and waits only for the thread that handles its events, which never waits for it. A panic here is a bug that would leave clients with half an RNIC: it ends
//! the process.

use std::os::fd::{AsFd, OwnedFd};
use std::sync::{Arc, Mutex};
use std::thread::{Builder, JoinHandle};
use std::time::{Duration, Instant};

use crossbeam::channel::{Receiver, Sender, TryRecvError};
use rnic_engine::command::Command;
use rnic_host::{EndProcess, privileges, seccomp};
use rnic_ipc::threads;
use rnic_xsk::Port;
use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec};

use super::contention::Contention;
use super::{Beat, Drive, Engine, Kicks, Patience, Reply, ShardMessage, Stopped, ThreadConfig};
use crate::Polling;
use crate::config::cores::runs_on;
use crate::sync::lock;

/// Commands that wait for the shard; beyond it, the thread that gives one waits.
const COMMANDS_MAX: usize = 64;
/// Commands carried out between two polls.
const COMMANDS_PER_POLL: usize = 4;
/// A port without a descriptor is polled this often.
const BLIND_PAUSE: Duration = Duration::from_micros(100);

/// To command a shard's thread.
#[derive(Debug)]
pub(super) struct Handle {
    inbox: Sender<Message>,
    waker: Arc<OwnedFd>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

#[derive(Debug)]
enum Message {
    /// Carry out; the answer goes to `reply`, if there is one.
    Command {
        command: Box<Command>,
        reply: Option<Sender<Reply>>,
    },
    /// Wait for work in another way.
    Polling(Polling),
    /// Be quiet and end.
    Stop { patience: Patience },
}

pub(super) fn start<P: Port + Send + std::fmt::Debug + 'static>(
    engine: Engine<P>,
    (kicks, beat): (Arc<Kicks>, Beat),
    events: Sender<ShardMessage>,
    ThreadConfig {
        core,
        polling,
        seccomp,
    }: ThreadConfig,
) -> std::io::Result<Handle> {
    let (inbox, messages) = crossbeam::channel::bounded(COMMANDS_MAX);
    let waker = rustix::event::eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
    let waker = Arc::new(waker);
    let (ready, started) = crossbeam::channel::bounded(1);
    let worker = Worker {
        engine,
        messages,
        waker: waker.clone(),
        kicks,
        beat,
        events,
        polling,
    };
    let name = thread_name(worker.engine.number().into());
    let mut ports = worker.engine.ports().iter();
    let udp = ports.any(Port::is_of_kernel);
    let thread = threads::spawn(Builder::new().name(name), move || {
        let bug = EndProcess("shard");
        let confined = runs_on(core).and_then(|()| confine(seccomp, udp));
        let may_run = confined.is_ok();
        // The starting thread waits for this.
        let _ = ready.send(confined);
        if may_run {
            worker.run();
        }
        drop(bug);
    })?;
    started.recv().map_err(std::io::Error::other)??;
    Ok(Handle {
        inbox,
        waker,
        thread: Mutex::new(Some(thread)),
    })
}

impl Handle {
    /// The answer comes by the channel, or the channel ends with the shard.
    pub(super) fn begin(&self, command: Command) -> Result<Receiver<Reply>, Stopped> {
        let (reply, answer) = crossbeam::channel::bounded(1);
        let message = Message::Command {
            command: Box::new(command),
            reply: Some(reply),
        };
        self.inbox.send(message).map_err(|_| Stopped)?;
        self.wake();
        Ok(answer)
    }

    pub(super) fn post(&self, command: Command) {
        if !self.try_post(command) {
            log::warn!("a command for the shard is lost: it is busy or has ended");
        }
    }

    pub(super) fn try_post(&self, command: Command) -> bool {
        let message = Message::Command {
            command: Box::new(command),
            reply: None,
        };
        let taken = self.inbox.try_send(message).is_ok();
        self.wake();
        taken
    }

    pub(super) fn set_polling(&self, polling: Polling) -> Result<(), Stopped> {
        let sent = self.inbox.send(Message::Polling(polling));
        self.wake();
        sent.map_err(|_| Stopped)
    }

    pub(super) fn begin_stopping(&self, patience: Patience) {
        if self.inbox.send(Message::Stop { patience }).is_ok() {
            self.wake();
        }
    }

    pub(super) fn join(&self) {
        let thread = lock(&self.thread).take();
        if thread.is_some_and(|thread| thread.join().is_err()) {
            log::error!("the shard's thread panicked");
        }
    }

    fn wake(&self) {
        // A full counter is as good as a wake-up.
        let _ = rustix::io::write(&*self.waker, &1_u64.to_ne_bytes());
    }
}

pub(in crate::runtime) fn thread_name(shard: usize) -> String {
    match shard {
        0 => "rnic-shard".to_owned(),
        number => format!("rnic-shard-{number}"),
    }
}

/// Leaves the calling thread what a shard needs of the kernel.
fn confine(seccomp: bool, udp: bool) -> std::io::Result<()> {
    privileges::renounce("rnic-shard");
    if !seccomp {
        return Ok(());
    }
    seccomp::restrict_shard(udp).map_err(|error| {
        let why = format!("the seccomp filter of its thread: {error} (--no-seccomp does without)");
        std::io::Error::new(error.kind(), why)
    })
}

struct Worker<P> {
    engine: Engine<P>,
    messages: Receiver<Message>,
    waker: Arc<OwnedFd>,
    kicks: Arc<Kicks>,
    beat: Beat,
    events: Sender<ShardMessage>,
    polling: Polling,
}

impl<P: Port + Send + std::fmt::Debug> Worker<P> {
    fn run(mut self) {
        let mut last_work = Instant::now();
        let mut contention = Contention::default();
        loop {
            self.beat.iteration();
            let mut worked = false;
            for _ in 0..COMMANDS_PER_POLL {
                match self.messages.try_recv() {
                    Ok(Message::Command { command, reply }) => {
                        self.execute(*command, reply);
                        worked = true;
                    }
                    Ok(Message::Polling(polling)) => self.polling = polling,
                    Ok(Message::Stop { patience }) => return self.quiesce(patience),
                    Err(TryRecvError::Empty) => break,
                    Err(TryRecvError::Disconnected) => return self.quiesce(Patience::default()),
                }
            }
            let events = &self.events;
            worked |= self.engine.poll(&mut |message| drop(events.send(message)));
            match self.polling {
                _ if worked => last_work = Instant::now(),
                Polling::Spin => std::hint::spin_loop(),
                // Clients on the same core can't post while we spin.
                Polling::Adaptive(spin) => {
                    let now = Instant::now();
                    if now - last_work < spin && !contention.holds(now) {
                        contention.yield_now(now);
                    } else {
                        self.sleep();
                    }
                }
                Polling::Event => self.sleep(),
            }
        }
    }

    fn execute(&mut self, command: Command, reply: Option<Sender<Reply>>) {
        let events = &self.events;
        let done = self
            .engine
            .execute(command, &mut |message| drop(events.send(message)));
        if let Some(reply) = reply {
            // The thread that asked may have ended.
            let _ = reply.send(done);
        }
    }

    fn quiesce(&mut self, patience: Patience) {
        // How long it takes to end is no fault.
        self.beat.sleep();
        let events = &self.events;
        self.engine
            .quiesce(patience, &mut |message| drop(events.send(message)));
    }

    /// Waits until there may be work. Clients and the owners of commands see that the thread is about to sleep before
    /// it checks for work once more, so that no wake-up is missed.
    fn sleep(&mut self) {
        if !self.engine.shard().prepare_sleep() {
            return;
        }
        if self.messages.is_empty() {
            self.beat.sleep();
            self.wait();
        }
        self.engine.shard().wake_up();
    }

    fn wait(&mut self) {
        let mut patience = self.engine.patience();
        let shard = self.engine.shard();
        let mut fds: Vec<PollFd<'_>> = shard
            .poll_fds()
            .map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN))
            .collect();
        if shard.has_blind_port() {
            patience = Some(patience.map_or(BLIND_PAUSE, |patience| patience.min(BLIND_PAUSE)));
        }
        fds.push(PollFd::from_borrowed_fd(self.kicks.as_fd(), PollFlags::IN));
        fds.push(PollFd::from_borrowed_fd(self.waker.as_fd(), PollFlags::IN));
        let timeout = patience.and_then(|patience| Timespec::try_from(patience).ok());
        if rustix::event::poll(&mut fds, timeout.as_ref()).is_err() {
            // EINTR: the next iteration finds what it was.
            return;
        }
        let woken = |fd: Option<&PollFd<'_>>| fd.is_some_and(|fd| !fd.revents().is_empty());
        let kicked = woken(fds.iter().rev().nth(1));
        let commanded = woken(fds.last());
        drop(fds);
        if kicked {
            self.kicks.take();
        }
        if commanded {
            let mut count = [0; 8];
            // EAGAIN: another wait took it.
            let _ = rustix::io::read(&*self.waker, &mut count);
        }
    }
}

#[cfg(test)]
mod tests;
