//! Other users than root, in this process: Linux has them by thread.

use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use rustix::process::{Gid, Uid};

use crate::daemon::Daemon;

/// Becomes an unprivileged user for good: the calling thread, and those that it starts.
///
/// Of users it knows only the number; the group has the same. Whoever is not root stays who it is.
pub fn become_for_good(uid: u32) {
    if !rustix::process::geteuid().is_root() {
        return;
    }
    let (uid, gid) = (Uid::from_raw(uid), Gid::from_raw(uid));
    let become_user = || {
        rustix::thread::set_thread_groups(&[])?;
        rustix::thread::set_thread_res_gid(gid, gid, gid)?;
        rustix::thread::set_thread_res_uid(uid, uid, uid)
    };
    become_user().expect("root may become anybody");
}

/// Runs a closure in a thread of another user's: what it connects to sees that user.
pub fn run_as<T: Send>(uid: u32, work: impl FnOnce() -> T + Send) -> T {
    std::thread::scope(|scope| {
        let thread = scope.spawn(|| {
            become_for_good(uid);
            work()
        });
        let done = thread.join();
        done.unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    })
}

/// Lets any user connect to a daemon.
pub fn open_to_all(daemon: &Daemon) {
    let open = |path: &Path, mode| {
        let done = std::fs::set_permissions(path, PermissionsExt::from_mode(mode));
        done.expect("root may");
    };
    open(daemon.socket(), 0o666);
    open(daemon.socket().parent().expect("a directory"), 0o755);
}
