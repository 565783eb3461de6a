//! Namespaces that a crashed run left behind.
//!
//! A lab's namespace carries the process id of its test in its name. When no such process lives,
//! what is left in the namespace was the lab's, and goes.

use std::path::Path;

use rustix::process::{Pid, Signal, kill_process};

/// What every namespace of a lab begins with; the process id follows.
pub(super) const PREFIX: &str = "rniclab-";

/// Deletes the namespaces of labs whose process is gone, and ends what still runs in them.
pub(super) fn clean() {
    let Ok(entries) = std::fs::read_dir("/run/netns") else {
        return; // No namespace was ever made here.
    };
    for entry in entries.flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        if owner(&name).is_some_and(|pid| !Path::new(&format!("/proc/{pid}")).exists()) {
            remove(&name);
        }
    }
}

/// The process whose lab made a namespace of this name.
fn owner(name: &str) -> Option<u32> {
    name.strip_prefix(PREFIX)?.split('-').next()?.parse().ok()
}

fn remove(name: &str) {
    // Two tests that start together may both find it: what fails here was done by the other.
    let run = |arguments: &[&str]| std::process::Command::new("ip").args(arguments).output();
    if let Ok(output) = run(&["netns", "pids", name]) {
        for pid in String::from_utf8_lossy(&output.stdout).split_whitespace() {
            if let Some(pid) = pid.parse().ok().and_then(Pid::from_raw) {
                let _ = kill_process(pid, Signal::KILL);
            }
        }
    }
    let _ = run(&["netns", "del", name]);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_names_of_labs_have_an_owner() {
        assert_eq!(owner("rniclab-123-4-a"), Some(123));
        for other in ["rniclab", "rniclab-", "rniclab-x-1", "blue", "rnic-123-4"] {
            assert_eq!(owner(other), None, "{other}");
        }
    }
}
