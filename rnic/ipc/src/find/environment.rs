//! The environment, unless somebody else set it: that of a program with more rights than who started it
//! (set-user-ID, set-group-ID, file capabilities; ld.so(8), secure_getenv(3)).

use std::ffi::OsString;

use nix::libc::{AT_SECURE, getauxval};

/// A variable of the environment, as secure_getenv(3) gives it.
pub fn variable(name: &str) -> Option<OsString> {
    match has_more_rights_than_its_starter() {
        true => None,
        false => std::env::var_os(name),
    }
}

#[allow(unsafe_code)]
fn has_more_rights_than_its_starter() -> bool {
    // SAFETY: it takes a number and gives one; of a number that it does not know, 0.
    unsafe { getauxval(AT_SECURE) != 0 }
}
