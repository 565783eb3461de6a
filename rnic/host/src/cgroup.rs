//! What the memory limits of control groups leave to this process (cgroups(7), both versions).
//!
//! A limit that is reached is no error of any call: the kernel kills one of the group's processes.
//! So who must not be killed has to look before.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Component, Path, PathBuf};

/// The groups that the process is in, with those that they are in, as far as they can be read. They
/// are found once: a process that is put into another group later is not noticed.
#[derive(Debug, Default)]
pub struct Groups(Vec<Group>);

/// A group that may have a limit.
#[derive(Debug)]
struct Group {
    path: PathBuf,
    limit: File,
    used: File,
    statistics: File,
    names: &'static Names,
}

/// What the files of a version are called.
#[derive(Debug)]
struct Names {
    limit: &'static str,
    used: &'static str,
    /// Lines of `memory.stat` with bytes of files' pages, which the kernel can let go.
    caches: [&'static str; 2],
}

const FIRST: Names = Names {
    limit: "memory.limit_in_bytes",
    used: "memory.usage_in_bytes",
    caches: ["total_inactive_file", "total_active_file"],
};
const SECOND: Names = Names {
    limit: "memory.max",
    used: "memory.current",
    caches: ["inactive_file", "active_file"],
};
const STATISTICS: &str = "memory.stat";
/// Bytes of a file that are looked at.
const FILE_MAX: usize = 8192;

impl Groups {
    /// Those of this process. None where the host has none, or shows none.
    pub fn find() -> Self {
        let read = |path: &str| std::fs::read_to_string(path).unwrap_or_default();
        Self::of(&read("/proc/self/cgroup"), &read("/proc/self/mountinfo"))
    }

    /// Those that `/proc/self/cgroup` and `/proc/self/mountinfo` tell of by these texts.
    pub fn of(memberships: &str, mounts: &str) -> Self {
        let mut groups = Vec::new();
        for membership in memberships.lines() {
            let mut fields = membership.splitn(3, ':');
            let (_, Some(controllers), Some(path)) = (fields.next(), fields.next(), fields.next())
            else {
                continue;
            };
            let (kind, names) = match controllers {
                "" => ("cgroup2", &SECOND),
                all if all.split(',').any(|name| name == "memory") => ("cgroup", &FIRST),
                _ => continue,
            };
            let Some((top, below)) = mounts.lines().find_map(|mount| place(mount, kind, path))
            else {
                continue;
            };
            let mut at = top.join(below);
            loop {
                // The topmost of version 2 has no such files.
                groups.extend(Group::open(&at, names));
                if at == top || !at.pop() {
                    break;
                }
            }
        }
        Self(groups)
    }

    /// That no limit keeps the process from so many bytes more; else what is found.
    pub fn check(&self, bytes: u64) -> Result<(), String> {
        self.0.iter().try_for_each(|group| group.check(bytes))
    }
}

impl Group {
    fn open(at: &Path, names: &'static Names) -> Option<Self> {
        let open = |name| File::open(at.join(name)).ok();
        Some(Self {
            path: at.to_owned(),
            limit: open(names.limit)?,
            used: open(names.used)?,
            statistics: open(STATISTICS)?,
            names,
        })
    }

    fn check(&self, bytes: u64) -> Result<(), String> {
        // "max" is no number: there is no limit. Nor is what can't be read any more: the group is gone.
        let (Some(limit), Some(used)) = (number(&self.limit), number(&self.used)) else {
            return Ok(());
        };
        if limit.saturating_sub(used) >= bytes {
            return Ok(());
        }
        let statistics = text(&self.statistics).unwrap_or_default();
        let cached = |name: &&str| {
            let mut lines = statistics.lines().filter_map(|line| line.split_once(' '));
            let found = lines.find(|(key, _)| key == name);
            found
                .and_then(|(_, value)| value.parse::<u64>().ok())
                .unwrap_or(0)
        };
        let cached: u64 = self.names.caches.iter().map(cached).sum();
        let left = limit.saturating_sub(used.saturating_sub(cached));
        if left >= bytes {
            return Ok(());
        }
        Err(format!(
            "{bytes} bytes are to be free of the {limit} that the cgroup {} may have, but {left} are",
            self.path.display()
        ))
    }
}

/// The directory of the group of version 2 that this process is in, if the host has such and shows them.
pub(crate) fn of_version_2() -> Option<PathBuf> {
    let memberships = std::fs::read_to_string("/proc/self/cgroup").ok()?;
    let mounts = std::fs::read_to_string("/proc/self/mountinfo").ok()?;
    let path = memberships
        .lines()
        .find_map(|line| line.strip_prefix("0::"))?;
    let found = mounts
        .lines()
        .find_map(|mount| place(mount, "cgroup2", path));
    let (top, below) = found?;
    Some(top.join(below))
}

/// Where a mount of such groups has the one of this path: the mount's directory, and the way below it.
fn place(mount: &str, kind: &str, path: &str) -> Option<(PathBuf, PathBuf)> {
    // proc_pid_mountinfo(5): fields, a hyphen, kind, source, options.
    let (fields, rest) = mount.split_once(" - ")?;
    let mut rest = rest.split(' ');
    let (found, options) = (rest.next()?, rest.nth(1)?);
    let has_memory = || options.split(',').any(|option| option == "memory");
    if found != kind || (kind == "cgroup" && !has_memory()) {
        return None;
    }
    let mut fields = fields.split(' ').skip(3);
    let (root, top) = (fields.next()?, fields.next()?);
    let below = Path::new(path).strip_prefix(root).ok()?;
    let is_below = below
        .components()
        .all(|part| matches!(part, Component::Normal(_)));
    is_below.then(|| (PathBuf::from(top), below.to_owned()))
}

fn number(file: &File) -> Option<u64> {
    text(file).ok()?.trim().parse().ok()
}

fn text(file: &File) -> io::Result<String> {
    let mut bytes = [0; FILE_MAX];
    let count = file.read_at(&mut bytes, 0)?;
    Ok(String::from_utf8_lossy(bytes.get(..count).unwrap_or_default()).into_owned())
}

#[cfg(test)]
mod tests;
