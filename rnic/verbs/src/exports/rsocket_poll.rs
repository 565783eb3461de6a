//! Sockets over RDMA: waiting for several of them, and for other descriptors among them. Nothing is held
//! while a call waits (see `blocking`); what poll(2) is given is the thread's own.

use std::cell::RefCell;
use std::ffi::{c_int, c_short};
use std::time::{Duration, Instant};

use libc::{POLLERR, POLLHUP, POLLIN, POLLNVAL, POLLOUT, nfds_t, pollfd, timeval};
use rustix::io::Errno;

use super::blocking::{c, exported};
use crate::ffi::{Outcome, Ptr, number};
use crate::rsocket::{MAX_WAIT, table};

/// Bits of a word of an `fd_set`.
const WORD: usize = 64;
/// Descriptors that an `fd_set` has.
const SET: usize = 1024;

thread_local! {
    /// What the thread waits for, in the call that it is in.
    static WAITED: RefCell<Vec<pollfd>> = const { RefCell::new(Vec::new()) };
    /// The descriptors of a call to rselect.
    static SELECTED: RefCell<Vec<pollfd>> = const { RefCell::new(Vec::new()) };
}

/// When a call gives up.
#[derive(Clone, Copy)]
enum Deadline {
    Never,
    At(Instant),
}

impl Deadline {
    fn after(timeout: Option<Duration>) -> Self {
        let at = timeout.and_then(|timeout| Instant::now().checked_add(timeout));
        at.map_or(Self::Never, Self::At)
    }

    fn left(self) -> Option<Duration> {
        match self {
            Self::Never => None,
            Self::At(at) => Some(at.saturating_duration_since(Instant::now())),
        }
    }

    fn has_passed(self) -> bool {
        self.left() == Some(Duration::ZERO)
    }
}

/// Milliseconds for poll(2): none is left out.
fn milliseconds(time: Duration) -> c_int {
    c_int::try_from(time.as_nanos().div_ceil(1_000_000)).unwrap_or(c_int::MAX)
}

/// One round: what poll(2) is to be called with.
struct Round {
    place: Ptr<pollfd>,
    timeout: c_int,
}

/// Looks at the rsockets, and prepares to wait where none is ready.
fn begin(fds: Ptr<pollfd>, count: usize, deadline: Deadline) -> Outcome<Round> {
    let rsockets = table();
    let waits = !deadline.has_passed();
    let (mut ready, mut any) = (false, false);
    let place = WAITED.with_borrow_mut(|waited| {
        waited.clear();
        for asked in fds.values(count) {
            let mut entry = pollfd {
                revents: 0,
                ..asked
            };
            if let Some(socket) = rsockets.get(asked.fd) {
                any = true;
                let waits_here = waits && !ready;
                let found = socket.attempt(waits_here, |state| {
                    let found = state.readiness(asked.events);
                    Ok((found != 0).then_some(found))
                })?;
                ready |= found.is_some();
                // One that nobody waits for is not polled.
                entry.fd = match found.is_none() && waits_here {
                    true => asked.fd,
                    false => -1,
                };
                entry.events = POLLIN;
            }
            waited.push(entry);
        }
        Ok::<_, crate::ffi::Fail>(Ptr::to_start(waited))
    })?;
    let left = match (waits && !ready, deadline.left()) {
        (false, _) => Some(Duration::ZERO),
        // Rsockets are looked at again after a while.
        (true, left) if any => Some(left.unwrap_or(MAX_WAIT).min(MAX_WAIT)),
        (true, left) => left,
    };
    Ok(Round {
        place,
        timeout: left.map_or(-1, milliseconds),
    })
}

/// Writes down what was found, and says of how many descriptors anything.
fn end(fds: Ptr<pollfd>, count: usize) -> Outcome<c_int> {
    let rsockets = table();
    WAITED.with_borrow(|waited| {
        let mut found = 0;
        for (index, waited) in waited.iter().enumerate().take(count) {
            let at = fds.at(index);
            let asked = at.read()?;
            let revents = match rsockets.get(asked.fd) {
                Some(socket) => {
                    if waited.fd >= 0 {
                        socket.end_wait();
                    }
                    let ready =
                        |state: &mut crate::rsocket::State| Ok(Some(state.readiness(asked.events)));
                    socket.attempt(false, ready)?.unwrap_or(0)
                }
                None => waited.revents,
            };
            at.update(|asked| asked.revents = revents);
            found += c_int::from(revents != 0);
        }
        Ok(found)
    })
}

fn wait(call: &str, fds: Ptr<pollfd>, count: usize, deadline: Deadline) -> c_int {
    loop {
        let (mut place, mut timeout) = (Ptr::NULL, 0);
        let begun = number(call, || {
            let round = begin(fds, count, deadline)?;
            (place, timeout) = (round.place, round.timeout);
            Ok(0)
        });
        if begun < 0 {
            return -1;
        }
        // SAFETY: `count` elements of this thread's, which no other call of it has until this one ends.
        let woken = unsafe { c::poll(place.as_raw(), count as nfds_t, timeout) };
        let found = number(call, || {
            let found = end(fds, count)?;
            match woken {
                ..0 if found == 0 => Err(Errno::INTR.into()),
                _ => Ok(found),
            }
        });
        if found != 0 || deadline.has_passed() {
            return found;
        }
    }
}

exported!("RDMACM_1.0" rpoll);
#[unsafe(export_name = "rnic_verbs_rpoll")]
unsafe extern "C-unwind" fn rpoll(fds: Ptr<pollfd>, count: nfds_t, timeout: c_int) -> c_int {
    let timeout = u64::try_from(timeout).ok().map(Duration::from_millis);
    wait("rpoll", fds, count as usize, Deadline::after(timeout))
}

/// A set of descriptors that a program passes; null is none.
#[derive(Clone, Copy)]
struct Set(Ptr<u64>);

impl Set {
    fn has(self, fd: usize) -> bool {
        let word = self.0.at(fd / WORD);
        !self.0.is_null() && word.get().is_some_and(|word| word >> (fd % WORD) & 1 != 0)
    }

    fn put(self, fd: usize, is_in: bool) {
        if !self.0.is_null() {
            let bit = 1 << (fd % WORD);
            self.0.at(fd / WORD).update(|word| match is_in {
                true => *word |= bit,
                false => *word &= !bit,
            });
        }
    }
}

/// What select(2) calls readable, writable and exceptional.
const READ: c_short = POLLIN | POLLHUP | POLLERR;
const WRITE: c_short = POLLOUT | POLLERR;
const EXCEPT: c_short = libc::POLLPRI;

exported!("RDMACM_1.0" rselect);
#[unsafe(export_name = "rnic_verbs_rselect")]
unsafe extern "C-unwind" fn rselect(
    limit: c_int,
    reads: Ptr<u64>,
    writes: Ptr<u64>,
    excepts: Ptr<u64>,
    timeout: Ptr<timeval>,
) -> c_int {
    let sets = [
        (Set(reads), POLLIN, READ),
        (Set(writes), POLLOUT, WRITE),
        (Set(excepts), libc::POLLPRI, EXCEPT),
    ];
    let (mut place, mut count, mut deadline) = (Ptr::NULL, 0, Deadline::Never);
    let begun = number("rselect", || {
        let limit = usize::try_from(limit).map_err(|_| Errno::INVAL)?.min(SET);
        deadline = Deadline::after(duration_of(timeout)?);
        (place, count) = SELECTED.with_borrow_mut(|selected| {
            selected.clear();
            for fd in 0..limit {
                let wanted = sets.iter().filter(|(set, ..)| set.has(fd));
                let events = wanted.fold(0, |events, (_, event, _)| events | event);
                if events != 0 {
                    selected.push(pollfd {
                        fd: fd as c_int,
                        events,
                        revents: 0,
                    });
                }
            }
            (Ptr::to_start(selected), selected.len())
        });
        Ok(0)
    });
    if begun < 0 || wait("rselect", place, count, deadline) < 0 {
        return -1;
    }
    number("rselect", || {
        let mut found = 0;
        for polled in place.values(count) {
            if polled.revents & POLLNVAL != 0 {
                return Err(Errno::BADF.into());
            }
            for (set, event, ready) in sets {
                let fd = polled.fd as usize;
                let is_in = polled.events & event != 0 && polled.revents & ready != 0;
                set.put(fd, is_in);
                found += c_int::from(is_in && !set.0.is_null());
            }
        }
        Ok(found)
    })
}

/// A time that a program passes; null is none.
fn duration_of(timeout: Ptr<timeval>) -> Outcome<Option<Duration>> {
    let Some(timeout) = timeout.get() else {
        return Ok(None);
    };
    let seconds = u64::try_from(timeout.tv_sec).map_err(|_| Errno::INVAL)?;
    let micros = u64::try_from(timeout.tv_usec).map_err(|_| Errno::INVAL)?;
    Ok(Some(
        Duration::from_secs(seconds) + Duration::from_micros(micros),
    ))
}
