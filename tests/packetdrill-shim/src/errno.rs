//! Why a call failed, as C programs say it.

use libc::c_int;

/// An error number of errno(3).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Errno(pub(crate) c_int);

impl Errno {
    /// The call has to wait, or to be made again.
    pub(crate) const AGAIN: Self = Self(libc::EAGAIN);
}

/// What a call comes to.
pub(crate) type Result<T> = std::result::Result<T, Errno>;

/// A call that fails.
pub(crate) fn fail<T>(number: c_int) -> Result<T> {
    Err(Errno(number))
}
