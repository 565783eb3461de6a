//! Waiting threads, and when time passes.
//!
//! packetdrill has two threads: one makes the calls that block, the other does all else. Either lets
//! time pass by sleeping, waiting for packets and looking at the clock. Before it does, a thread that
//! waits may take what it waits for, and look at the clock, as long as the clock stands. That keeps a run the same
//! every time.

use std::sync::{Condvar, Mutex, MutexGuard};
use std::thread::{self, ThreadId};
use std::time::Duration;

use libc::c_int;
use userspace_net::Instant;

use crate::errno::{Errno, Result, fail};
use crate::settings::Settings;
use crate::world::World;

/// How long, in real time, the clock stands still for a thread that has something to do: longer than
/// a busy machine keeps it waiting. It passes only when a thread never comes back.
const COURTESY: Duration = Duration::from_secs(5);
/// How long, in virtual time, anything is waited for.
const PATIENCE: Duration = Duration::from_secs(3600);
/// What one look at the clock takes, in virtual time: a thread that looks until it is later gets there.
const LOOK: Duration = Duration::from_micros(1);

/// What `userdata` points to.
#[derive(Debug)]
pub(crate) struct Shim {
    state: Mutex<State>,
    turn: Condvar,
    /// The thread that never waits for another: time passes for its calls.
    driver: ThreadId,
}

#[derive(Debug)]
pub(crate) struct State {
    pub(crate) world: World,
    /// Goes up with each change that somebody could wait for.
    changes: u64,
    /// Threads that wait, and how many of them know of all changes.
    waiters: usize,
    informed: usize,
    /// Threads that waited and have not looked at the clock since.
    returning: Vec<ThreadId>,
    /// When they would wait no longer.
    alarms: Vec<Instant>,
}

type Guard<'a> = MutexGuard<'a, State>;

impl Shim {
    pub(crate) fn new(settings: Settings) -> Self {
        Self {
            state: Mutex::new(State {
                world: World::new(settings),
                changes: 0,
                waiters: 0,
                informed: 0,
                returning: Vec::new(),
                alarms: Vec::new(),
            }),
            turn: Condvar::new(),
            driver: thread::current().id(),
        }
    }

    /// A call that never waits.
    pub(crate) fn now<T>(&self, call: impl FnOnce(&mut World) -> Result<T>) -> Result<T> {
        let mut state = self.lock()?;
        let answer = call(&mut state.world);
        self.changed(&mut state);
        answer
    }

    /// A call on a socket that waits as long as it says `EAGAIN`, unless the socket is not to block.
    pub(crate) fn call<T>(
        &self,
        fd: c_int,
        nonblocking: bool,
        call: impl FnMut(&mut World) -> Result<T>,
    ) -> Result<T> {
        let nonblocking = nonblocking || self.lock()?.world.socket(fd)?.nonblocking;
        let patience = if nonblocking {
            Duration::ZERO
        } else {
            Duration::MAX
        };
        self.wait(patience, call)
    }

    /// A call that waits as long as it says `EAGAIN`, but not longer than `patience`.
    pub(crate) fn wait<T>(
        &self,
        patience: Duration,
        mut call: impl FnMut(&mut World) -> Result<T>,
    ) -> Result<T> {
        let mut state = self.lock()?;
        let answer = call(&mut state.world);
        self.changed(&mut state);
        if patience.is_zero() || !matches!(answer, Err(Errno::AGAIN)) {
            return answer;
        }
        let until = state.world.now + patience.min(PATIENCE);
        let answer = if thread::current().id() == self.driver {
            self.wait_alone(state, until, call)
        } else {
            self.wait_for_driver(state, until, call)
        };
        match answer {
            // A script that waits for what can't come.
            Err(Errno::AGAIN) if patience > PATIENCE => fail(libc::EDEADLK),
            answer => answer,
        }
    }

    /// Sleeps.
    pub(crate) fn sleep(&self, time: Duration) -> Result<()> {
        let state = self.lock()?;
        let until = state.world.now + time;
        self.pass(state, until).map(drop)
    }

    /// The next packet that the stack sends, and when; waits for it.
    pub(crate) fn packet(&self) -> Result<Option<(Instant, Vec<u8>)>> {
        let mut state = self.settled(self.lock()?)?;
        let until = state.world.now + PATIENCE;
        loop {
            if let Some(packet) = state.world.take_packet() {
                return Ok(Some(packet));
            }
            match state.next().filter(|at| *at <= until) {
                Some(at) => state = self.step(state, at)?,
                None => return Ok(None),
            }
        }
    }

    /// What the clock shows. That takes a little time, except for who waited for something.
    pub(crate) fn clock(&self) -> Result<Instant> {
        let mut state = self.lock()?;
        let me = thread::current().id();
        if let Some(at) = state.returning.iter().position(|thread| *thread == me) {
            state.returning.swap_remove(at);
            self.turn.notify_all();
            return Ok(state.world.now);
        }
        let until = state.world.now + LOOK;
        Ok(self.pass(state, until)?.world.now)
    }

    fn lock(&self) -> Result<Guard<'_>> {
        self.state.lock().or(fail(libc::EIO))
    }

    /// Tells those that wait.
    fn changed(&self, state: &mut State) {
        state.world.settle();
        state.changes += 1;
        state.informed = 0;
        self.turn.notify_all();
    }

    /// Lets the others do what there is to do now.
    fn settled<'a>(&'a self, state: Guard<'a>) -> Result<Guard<'a>> {
        let busy =
            |state: &mut State| state.informed < state.waiters || !state.returning.is_empty();
        let waited = self.turn.wait_timeout_while(state, COURTESY, busy);
        let (mut state, _) = waited.or(fail(libc::EIO))?;
        // Who has not looked at the clock until now won't.
        state.returning.clear();
        Ok(state)
    }

    /// Lets time pass until `at`, which is the next time that something happens, or before it.
    fn step<'a>(&'a self, state: Guard<'a>, at: Instant) -> Result<Guard<'a>> {
        let mut state = self.settled(state)?;
        state.world.advance(at);
        self.changed(&mut state);
        self.settled(state)
    }

    fn pass<'a>(&'a self, mut state: Guard<'a>, until: Instant) -> Result<Guard<'a>> {
        while let Some(at) = state.next().filter(|at| *at < until) {
            state = self.step(state, at)?;
        }
        self.step(state, until)
    }

    /// There is nobody else to let time pass.
    fn wait_alone<'a, T>(
        &'a self,
        mut state: Guard<'a>,
        until: Instant,
        mut call: impl FnMut(&mut World) -> Result<T>,
    ) -> Result<T> {
        loop {
            let at = state.next().unwrap_or(until).min(until);
            state = self.step(state, at)?;
            let answer = call(&mut state.world);
            self.changed(&mut state);
            if state.world.now >= until || !matches!(answer, Err(Errno::AGAIN)) {
                return answer;
            }
        }
    }

    fn wait_for_driver<'a, T>(
        &'a self,
        mut state: Guard<'a>,
        until: Instant,
        mut call: impl FnMut(&mut World) -> Result<T>,
    ) -> Result<T> {
        state.waiters += 1;
        state.alarms.push(until);
        let answer = loop {
            let seen = state.changes;
            state.informed += 1;
            self.turn.notify_all();
            let next = self.turn.wait_while(state, |state| state.changes == seen);
            state = next.or(fail(libc::EIO))?;
            let answer = call(&mut state.world);
            state.world.settle();
            if state.world.now >= until || !matches!(answer, Err(Errno::AGAIN)) {
                break answer;
            }
        };
        state.waiters -= 1;
        if let Some(at) = state.alarms.iter().position(|alarm| *alarm == until) {
            state.alarms.swap_remove(at);
        }
        state.returning.push(thread::current().id());
        self.changed(&mut state);
        answer
    }
}

impl State {
    /// When something happens by itself next.
    fn next(&self) -> Option<Instant> {
        let alarm = self.alarms.iter().min().copied();
        [self.world.next_deadline(), alarm]
            .into_iter()
            .flatten()
            .min()
    }
}
