//! The border to C: pointers that programs pass, objects that they hold, what a failure becomes, and
//! how functions are exported.
//!
//! The `unsafe` here relies on what the manual pages of the verbs demand of a program. A pointer that is passed
//! is null or points to what its type says, for as long as the call lasts. An object that was destroyed is not
//! used again. A program that does otherwise harms itself, as
//! with any libibverbs. No panic leaves an exported function.

use std::ffi::{CStr, c_char, c_int};
use std::panic::{AssertUnwindSafe, catch_unwind};

use rustix::io::Errno;

mod object;

pub(crate) use object::{Field, Object, Shared, Zeroed, field, object, zeroable, zeroed};

/// A pointer that a program passed or that is passed to one. It comes into being by a call from C, or by
/// one of the functions below.
#[repr(transparent)]
pub(crate) struct Ptr<T>(*mut T);

impl<T> Clone for Ptr<T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for Ptr<T> {}

// SAFETY: an address; who follows it answers for what it finds, on whatever thread.
unsafe impl<T> Send for Ptr<T> {}
// SAFETY: as above.
unsafe impl<T> Sync for Ptr<T> {}

impl<T> PartialEq for Ptr<T> {
    fn eq(&self, other: &Self) -> bool {
        self.0 == other.0
    }
}

impl<T> Ptr<T> {
    pub(crate) const NULL: Self = Self(std::ptr::null_mut());

    pub(crate) fn is_null(self) -> bool {
        self.0.is_null()
    }

    pub(crate) fn addr(self) -> usize {
        self.0.expose_provenance()
    }

    pub(crate) fn as_non_null(self) -> Option<std::ptr::NonNull<T>> {
        std::ptr::NonNull::new(self.0)
    }

    /// A pointer to the same as another type.
    pub(crate) fn cast<U>(self) -> Ptr<U> {
        Ptr(self.0.cast())
    }

    /// To what a program named by its address.
    pub(crate) fn from_addr(addr: u64) -> Self {
        Self(std::ptr::with_exposed_provenance_mut(addr as usize))
    }

    /// As the C library gave it.
    pub(crate) fn from_raw(raw: *mut T) -> Self {
        Self(raw)
    }

    pub(crate) fn to(thing: &mut T) -> Self {
        Self(thing)
    }

    /// To the first of what the caller has, if there is any.
    pub(crate) fn to_start(things: &mut [T]) -> Self {
        Self(things.as_mut_ptr())
    }

    /// As C takes it.
    pub(crate) fn as_raw(self) -> *mut T {
        self.0
    }

    /// To what the caller has and does not change.
    pub(crate) fn to_const(thing: &[T]) -> Self {
        Self(thing.as_ptr().cast_mut())
    }

    /// What is there now; null has nothing.
    pub(crate) fn read(self) -> Outcome<T>
    where
        T: Copy,
    {
        let Some(at) = self.as_non_null() else {
            return Err(Fail::of(Errno::INVAL, "a null pointer"));
        };
        // SAFETY: not null, so good for the call (see the module); programs pack their structs.
        Ok(unsafe { at.read_unaligned() })
    }

    /// As [`Self::read`], and nothing for null.
    pub(crate) fn get(self) -> Option<T>
    where
        T: Copy,
    {
        self.read().ok()
    }

    /// Puts a value there; for null nothing is done.
    pub(crate) fn write(self, value: T) {
        if let Some(at) = self.as_non_null() {
            // SAFETY: as for `read`.
            unsafe { at.write_unaligned(value) };
        }
    }

    pub(crate) fn update(self, change: impl FnOnce(&mut T)) {
        if let Some(mut at) = self.as_non_null() {
            // SAFETY: as for `read`; the program leaves it alone during the call.
            change(unsafe { at.as_mut() });
        }
    }

    /// Puts the first bytes of a value there, at most `room` of them.
    pub(crate) fn write_start(self, value: &T, room: usize) -> usize
    where
        T: Copy,
    {
        let bytes = room.min(size_of::<T>());
        if !self.is_null() {
            // SAFETY: the program has room for as many bytes as it says; a value of ours is no part of it.
            unsafe {
                std::ptr::copy_nonoverlapping(
                    std::ptr::from_ref(value).cast::<u8>(),
                    self.0.cast(),
                    bytes,
                );
            }
        }
        bytes
    }

    /// The place `index` of an array that begins here.
    pub(crate) fn at(self, index: usize) -> Self {
        Self(self.0.wrapping_add(index))
    }

    /// Whether values can be referred to where they are. Programs pack their structs.
    pub(crate) fn is_aligned(self) -> bool {
        self.0.is_aligned()
    }

    /// The `count` values from here on, wherever they lie; of null none.
    pub(crate) fn values(self, count: usize) -> impl Iterator<Item = T>
    where
        T: Copy,
    {
        (0..count).map_while(move |index| self.at(index).get())
    }

    /// As [`Self::slice`], for values that are to be written.
    pub(crate) fn slice_mut<'a>(self, count: usize) -> &'a mut [T] {
        match self.as_non_null() {
            // SAFETY: as for `slice`; nobody else has a part of it during the call.
            Some(at) if count > 0 => unsafe { std::slice::from_raw_parts_mut(at.as_ptr(), count) },
            _ => &mut [],
        }
    }

    /// The `count` values from here on, which are aligned; of null none.
    pub(crate) fn slice<'a>(self, count: usize) -> &'a [T] {
        match self.as_non_null() {
            // SAFETY: the program says how many there are, and leaves them alone during the call.
            Some(at) if count > 0 => unsafe { std::slice::from_raw_parts(at.as_ptr(), count) },
            _ => &[],
        }
    }
}

impl Ptr<c_char> {
    /// The text that begins here, if there is one.
    pub(crate) fn text<'a>(self) -> Option<&'a CStr> {
        // SAFETY: not null, so a string that ends with a zero (see the module).
        self.as_non_null()
            .map(|at| unsafe { CStr::from_ptr(at.as_ptr()) })
    }
}

/// An array of the C library's, ended by a null pointer, that a program gives back with `free_array`.
pub(crate) fn array_of<T>(items: &[Ptr<T>]) -> Outcome<Ptr<Ptr<T>>> {
    // SAFETY: no memory is touched that calloc did not give.
    let array = unsafe { libc::calloc(items.len() + 1, size_of::<Ptr<T>>()) };
    let array = Ptr(array.cast::<Ptr<T>>());
    if array.is_null() {
        return Err(Fail::of(Errno::NOMEM, "no memory for a list"));
    }
    for (index, item) in items.iter().enumerate() {
        array.at(index).write(*item);
    }
    Ok(array)
}

pub(crate) fn free_array<T>(array: Ptr<Ptr<T>>) {
    // SAFETY: null, or what `array_of` gave.
    unsafe { libc::free(array.0.cast()) };
}

/// The host's resolver. 0, or its own kind of error.
pub(crate) fn getaddrinfo(
    node: Ptr<c_char>,
    service: Ptr<c_char>,
    hints: &libc::addrinfo,
    list: &mut Ptr<libc::addrinfo>,
) -> c_int {
    // SAFETY: strings of the program's or null, hints of the caller's, and a place for the list, which is
    // a pointer as `Ptr` is one.
    unsafe { libc::getaddrinfo(node.0, service.0, hints, std::ptr::from_mut(list).cast()) }
}

pub(crate) fn freeaddrinfo(list: Ptr<libc::addrinfo>) {
    // SAFETY: what `getaddrinfo` gave.
    unsafe { libc::freeaddrinfo(list.0) };
}

/// A box that a program holds, without more than its struct.
pub(crate) fn hand_out_box<T>(value: Box<T>) -> Ptr<T> {
    Ptr(Box::into_raw(value))
}

pub(crate) fn take_back_box<T>(value: Ptr<T>) -> Option<Box<T>> {
    // SAFETY: null, or what `hand_out_box` gave and the program gives back.
    value
        .as_non_null()
        .map(|at| unsafe { Box::from_raw(at.as_ptr()) })
}

/// A count of elements, which must not be negative.
pub(crate) fn element_count(number: c_int) -> Outcome<usize> {
    usize::try_from(number).map_err(|_| Fail::of(Errno::INVAL, format!("{number} elements")))
}

/// Why a call failed: the number for the program, the sentence for the log.
#[derive(Debug)]
pub(crate) struct Fail {
    pub(crate) errno: Errno,
    why: Option<String>,
}

pub(crate) type Outcome<T> = Result<T, Fail>;

impl Fail {
    pub(crate) fn of(errno: Errno, why: impl Into<String>) -> Self {
        Self {
            errno,
            why: Some(why.into()),
        }
    }

    /// What an RNIC does not have.
    pub(crate) fn unsupported(why: impl Into<String>) -> Self {
        Self::of(Errno::OPNOTSUPP, why)
    }

    fn log(&self, call: &str) {
        if let Some(why) = &self.why {
            crate::logger::install();
            // Programs that end destroy things in any order, and try.
            let level = match self.errno {
                Errno::BUSY => log::Level::Info,
                _ => log::Level::Warn,
            };
            log::log!(level, "{call}: {why}");
        }
    }
}

impl std::fmt::Display for Fail {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match &self.why {
            Some(why) => f.write_str(why),
            None => write!(f, "{}", self.errno),
        }
    }
}

/// What is expected, such as a queue that is full: nothing for the log.
impl From<Errno> for Fail {
    fn from(errno: Errno) -> Self {
        Self { errno, why: None }
    }
}

impl From<rnic::Error> for Fail {
    fn from(error: rnic::Error) -> Self {
        use rnic::{Error, RefusalCode};
        let errno = match &error {
            Error::QueueFull => return Errno::NOMEM.into(),
            Error::NoDaemon(_) => Errno::NODEV,
            Error::NotPermitted(_) => Errno::ACCESS,
            Error::DaemonGone | Error::SessionEnded(_) => Errno::IO,
            Error::Timeout { .. } => Errno::TIMEDOUT,
            Error::Refused(refusal) => match refusal.code {
                RefusalCode::Limit => Errno::NOMEM,
                RefusalCode::Busy => Errno::BUSY,
                RefusalCode::PortInUse => Errno::ADDRINUSE,
                RefusalCode::AddressNotLocal => Errno::ADDRNOTAVAIL,
                RefusalCode::Unreachable => Errno::HOSTUNREACH,
                RefusalCode::NotPermitted => Errno::ACCESS,
                RefusalCode::BadMemory => Errno::FAULT,
                _ => Errno::INVAL,
            },
            Error::Io { errno, .. } => *errno,
            Error::Memory(_) => Errno::NOMEM,
            Error::NotJoined => Errno::OPNOTSUPP,
            _ => Errno::INVAL,
        };
        Self::of(errno, error.to_string())
    }
}

/// Sets the C library's `errno`.
fn set_errno(errno: Errno) {
    // SAFETY: the C library's word for this thread.
    unsafe { *libc::__errno_location() = errno.raw_os_error() };
}

mod c {
    use std::ffi::c_int;

    pub(super) const PTHREAD_CANCEL_DISABLE: c_int = 1;

    unsafe extern "C" {
        pub(super) fn pthread_setcancelstate(state: c_int, before: *mut c_int) -> c_int;
    }
}

/// Does what no thread can be cancelled in (pthread_cancel(3)). The C library's calls for files and
/// sockets are cancellation points, and a cancellation that reaches `catch_unwind` ends the process.
fn without_cancellation<T>(body: impl FnOnce() -> T) -> T {
    let mut before = 0;
    // SAFETY: a place on this stack.
    unsafe { c::pthread_setcancelstate(c::PTHREAD_CANCEL_DISABLE, &raw mut before) };
    let result = body();
    // SAFETY: the state from before, and null for what is not asked.
    unsafe { c::pthread_setcancelstate(before, std::ptr::null_mut()) };
    result
}

/// Runs what a call does, and logs its failure. A panic is a bug of ours, told by the panic's own line, and
/// EIO for the program. The log may be the program's own logger, so it is called where a panic is caught.
fn run<T>(call: &str, body: impl FnOnce() -> Outcome<T>) -> Result<T, Errno> {
    without_cancellation(|| attempt(call, body))
}

/// The same for calls of the data path, which make no call where a thread could be cancelled but to log.
fn attempt<T>(call: &str, body: impl FnOnce() -> Outcome<T>) -> Result<T, Errno> {
    let logged = || {
        body().map_err(|fail| {
            without_cancellation(|| fail.log(call));
            fail.errno
        })
    };
    let outcome = catch_unwind(AssertUnwindSafe(logged)).unwrap_or(Err(Errno::IO));
    outcome.inspect_err(|errno| set_errno(*errno))
}

/// The body of a verb of the data path, that returns 0 or an error's number.
pub(crate) fn data_verb(call: &str, body: impl FnOnce() -> Outcome<()>) -> c_int {
    attempt(call, body).map_or_else(Errno::raw_os_error, |()| 0)
}

/// The body of a verb of the data path, that returns a number, or -1 and sets `errno`.
pub(crate) fn data_number(call: &str, body: impl FnOnce() -> Outcome<c_int>) -> c_int {
    attempt(call, body).unwrap_or(-1)
}

/// The body of a verb that returns 0 or an error's number.
pub(crate) fn verb(call: &str, body: impl FnOnce() -> Outcome<()>) -> c_int {
    run(call, body).map_or_else(Errno::raw_os_error, |()| 0)
}

/// The body of a call that returns 0, or -1 and sets `errno`, as the connection manager's do.
pub(crate) fn cm(call: &str, body: impl FnOnce() -> Outcome<()>) -> c_int {
    run(call, body).map_or(-1, |()| 0)
}

/// The body of a call that returns a number, or -1 and sets `errno`.
pub(crate) fn number(call: &str, body: impl FnOnce() -> Outcome<c_int>) -> c_int {
    run(call, body).unwrap_or(-1)
}

/// The same of a wider number.
pub(crate) fn long(call: &str, body: impl FnOnce() -> Outcome<isize>) -> isize {
    run(call, body).unwrap_or(-1)
}

/// The body of a verb that returns how many there are, or an error's number, negative.
pub(crate) fn count(call: &str, body: impl FnOnce() -> Outcome<isize>) -> isize {
    run(call, body).unwrap_or_else(|errno| -(errno.raw_os_error() as isize))
}

/// The body of a call that returns a pointer, or null and sets `errno`.
pub(crate) fn ptr<T>(call: &str, body: impl FnOnce() -> Outcome<Ptr<T>>) -> Ptr<T> {
    run(call, body).unwrap_or(Ptr::NULL)
}

/// The body of a call that tells nobody of its failure but the log.
pub(crate) fn void(call: &str, body: impl FnOnce() -> Outcome<()>) {
    let _ = run(call, body);
}

/// The body of a call that can't fail.
pub(crate) fn plain<T: Default>(call: &str, body: impl FnOnce() -> T) -> T {
    run(call, || Ok(body())).unwrap_or_default()
}

/// Exports functions: the version of the symbol, which of the above its body is for, the function. In
/// tests of this crate, which are a program, nothing has a version.
macro_rules! exports {
    ($($(#[$about:meta])* $version:literal $kind:ident fn $name:ident($($arg:ident: $type:ty),* $(,)?) $(-> $ret:ty)? $body:block)*) => {
        $(
            const _: () = {
                $(#[$about])*
                #[unsafe(export_name = concat!("rnic_verbs_", stringify!($name)))]
                unsafe extern "C-unwind" fn export($($arg: $type),*) $(-> $ret)? {
                    crate::ffi::$kind(stringify!($name), move || $body)
                }
            };
            #[cfg(not(test))]
            std::arch::global_asm!(concat!(
                ".symver rnic_verbs_", stringify!($name), ", ", stringify!($name), "@@", $version
            ));
        )*
    };
}
pub(crate) use exports;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_panic_is_an_error_of_the_call() {
        assert_eq!(verb("test", || panic!("in the test")), libc::EIO);
    }
}
