//! Control groups of a test's own, with a limit of memory (cgroups(7), both versions).

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

/// Where the kernel has groups: of version 1 that of the memory controller.
const FIRST: &str = "/sys/fs/cgroup/memory";
const SECOND: &str = "/sys/fs/cgroup";

/// A group that is removed when it is dropped; its processes are to have ended.
#[derive(Debug)]
pub struct Cgroup {
    at: PathBuf,
    is_first: bool,
}

impl Cgroup {
    /// A new group without a limit. None, and a line that names the test and what is missing, where the
    /// machine lets this user make none that counts memory.
    #[must_use]
    pub fn new(test: &str) -> Option<Self> {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let name = format!("rniclab-{}-{number}", std::process::id());
        let is_first = Path::new(FIRST).join("memory.stat").exists();
        let top = if is_first { FIRST } else { SECOND };
        let at = Path::new(top).join(name);
        if let Err(error) = std::fs::create_dir(&at) {
            println!(
                "NOT TESTED: {test}: {} can't be made: {error}",
                at.display()
            );
            return None;
        }
        let this = Self { at, is_first };
        if this.file(this.used()).exists() {
            return Some(this);
        }
        println!(
            "NOT TESTED: {test}: {} counts no memory (cgroup.subtree_control there has no `memory`)",
            this.at.display()
        );
        None
    }

    fn used(&self) -> &'static str {
        if self.is_first {
            "memory.usage_in_bytes"
        } else {
            "memory.current"
        }
    }

    fn file(&self, name: &str) -> PathBuf {
        self.at.join(name)
    }

    /// Bytes charged to it.
    #[must_use]
    pub fn usage(&self) -> u64 {
        let path = self.file(self.used());
        let text = std::fs::read_to_string(&path);
        let text = text.unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        text.trim().parse().expect("a number")
    }

    /// Sets its limit; of swap it gets none.
    pub fn limit(&self, bytes: u64) {
        let (limit, swap) = if self.is_first {
            ("memory.limit_in_bytes", "memory.memsw.limit_in_bytes")
        } else {
            ("memory.max", "memory.swap.max")
        };
        let set = |name: &str, bytes: u64| std::fs::write(self.file(name), bytes.to_string());
        set(limit, bytes).unwrap_or_else(|error| panic!("a limit of {bytes}: {error}"));
        // Hosts without swap may have no such file.
        let _ = set(swap, if self.is_first { bytes } else { 0 });
    }

    /// A shell command that puts the shell into this group, has the groups' files where the kernel has
    /// them also in a new mount namespace, and becomes the program of its arguments.
    #[must_use]
    pub fn script(&self) -> String {
        let procs = self.file("cgroup.procs");
        let mount = if self.is_first {
            format!(
                "mount -t tmpfs none {SECOND} && mkdir -p {FIRST} && \
                 mount -t cgroup -o memory none {FIRST}"
            )
        } else {
            format!("mount -t cgroup2 none {SECOND}")
        };
        format!(
            "test -e {procs} || {{ {mount}; }} && echo $$ >{procs} && exec \"$@\"",
            procs = procs.display()
        )
    }
}

impl Drop for Cgroup {
    fn drop(&mut self) {
        // Its processes may be gone only in a moment; the kernel refuses so long.
        for _ in 0..100 {
            if std::fs::remove_dir(&self.at).is_ok() {
                return;
            }
            std::thread::sleep(std::time::Duration::from_millis(20));
        }
        eprintln!("the cgroup {} stays: it has processes", self.at.display());
    }
}
