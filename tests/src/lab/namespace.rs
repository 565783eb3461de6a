//! One network namespace: a host of the lab.

use std::fs::File;
use std::sync::Arc;

use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};

use super::process::Command;
use super::{Shared, ip};

/// A network namespace. Clones name the same one; the [`Lab`](super::Lab) deletes it.
#[derive(Clone, Debug)]
pub struct Namespace {
    name: String,
    shared: Arc<Shared>,
}

impl Namespace {
    pub(super) fn create(name: String, shared: Arc<Shared>) -> Self {
        ip(&["netns", "add", &name]);
        let namespace = Self { name, shared };
        namespace.ip(&["link", "set", "dev", "lo", "up"]);
        namespace
    }

    pub(super) fn shared(&self) -> &Arc<Shared> {
        &self.shared
    }

    /// Its name as `ip netns` lists it.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Runs `ip` on this namespace and gives its output; panics when `ip` fails.
    pub fn ip(&self, arguments: &[&str]) -> String {
        let mut all = vec!["-n", &self.name];
        all.extend_from_slice(arguments);
        ip(&all)
    }

    /// Runs a short command of the set-up inside, without log files; panics when it fails.
    pub(super) fn exec(&self, command: &[&str]) -> String {
        let mut all = vec!["netns", "exec", &self.name];
        all.extend_from_slice(command);
        ip(&all)
    }

    /// Sets one of the kernel's variables of this host's network, `net.ipv4.ip_forward` or the like.
    pub fn sysctl(&self, key: &str, value: &str) {
        let path = format!("/proc/sys/{}", key.replace('.', "/"));
        // The files are those of whoever opens them.
        let written = self.in_thread(|| std::fs::write(&path, value));
        written.unwrap_or_else(|error| panic!("can't write {value} to {path}: {error}"));
    }

    /// A command that will run inside, with the namespace's own `/sys` as `ip netns exec` gives it.
    pub fn command(&self, program: impl AsRef<std::ffi::OsStr>) -> Command {
        let label = std::path::Path::new(program.as_ref())
            .file_name()
            .map_or_else(
                || "program".into(),
                |name| name.to_string_lossy().into_owned(),
            );
        let mut command = Command::new("ip", label, self.clone());
        command = command.args(["netns", "exec", &self.name]).arg(program);
        command
    }

    /// Runs a closure in a thread that has joined this namespace: its sockets are this host's.
    /// `/proc/thread-self/net` is the namespace's too; `/sys` stays the one of the test.
    pub fn in_thread<T: Send>(&self, work: impl FnOnce() -> T + Send) -> T {
        std::thread::scope(|scope| {
            scope
                .spawn(|| {
                    self.enter();
                    work()
                })
                .join()
                .unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        })
    }

    /// Starts a closure in a thread of its own that has joined this namespace.
    pub fn start_thread<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> std::thread::JoinHandle<T> {
        let namespace = self.clone();
        std::thread::spawn(move || {
            namespace.enter();
            work()
        })
    }

    /// Moves the calling thread, for good, into the namespace.
    fn enter(&self) {
        let path = format!("/run/netns/{}", self.name);
        let file = File::open(&path).unwrap_or_else(|error| panic!("can't open {path}: {error}"));
        move_into_link_name_space(
            std::os::fd::AsFd::as_fd(&file),
            Some(LinkNameSpaceType::Network),
        )
        .unwrap_or_else(|error| panic!("can't join network namespace {}: {error}", self.name));
    }

    /// Deletes the name. The namespace itself goes when the last process in it has ended.
    pub(super) fn delete(&self) {
        let result = std::process::Command::new("ip")
            .args(["netns", "del", &self.name])
            .output();
        match result {
            Ok(output) if output.status.success() => {}
            other => eprintln!("namespace {} was not deleted: {other:?}", self.name),
        }
    }
}
