//! Which processor the thread of each shard stays on, and whose memory it works with.
//!
//! Memory is taken where it is first touched. So an interface whose threads stay somewhere is opened from there.

mod irq;

use std::io;
use std::path::Path;
use std::str::FromStr;

use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

use crate::config::number_list::NumberList;

/// Which processors the threads of an interface's shards stay on.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Cores {
    /// Where the kernel puts them.
    #[default]
    Any,
    /// Each where the interrupt of its first queue is handled, if that is known, else in turn on those of the
    /// interface's NUMA node.
    Auto,
    /// Shard n on the nth of these.
    List(Vec<u32>),
}

/// A text that names no processors.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("give processors, such as `0,2-5`, each once, or `any`, or `auto`")]
pub struct ParseCoresError;

impl FromStr for Cores {
    type Err = ParseCoresError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text {
            "any" => Ok(Self::Any),
            "auto" => Ok(Self::Auto),
            list => {
                let list = list.parse::<NumberList>().map_err(|_| ParseCoresError)?;
                Ok(Self::List(list.0))
            }
        }
    }
}

impl std::fmt::Display for Cores {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Any => f.write_str("any"),
            Self::Auto => f.write_str("auto"),
            Self::List(list) => {
                let texts: Vec<_> = list.iter().map(u32::to_string).collect();
                f.write_str(&texts.join(","))
            }
        }
    }
}

impl Cores {
    /// The processor of each shard of an interface, which has these queues: shard n begins with the nth of them.
    ///
    /// # Errors
    ///
    /// The kernel's, which does not say where this process may run.
    pub(crate) fn of(
        &self,
        shards: u32,
        interface: &str,
        queues: &[u32],
    ) -> io::Result<Vec<Option<u32>>> {
        let shards = 0..shards;
        Ok(match self {
            Self::Any => shards.map(|_| None).collect(),
            Self::List(list) => {
                let of = |shard: u32| list.get(shard as usize).copied();
                shards.map(of).collect()
            }
            Self::Auto => {
                let allowed = allowed()?;
                let near = near(Path::new("/"), interface, &allowed);
                let irqs = irq::of_queues(Path::new("/"), interface);
                let of = |shard: u32| {
                    let queue = queues.get(shard as usize);
                    let irq = queue.and_then(|queue| irqs.get(queue)).copied();
                    let irq = irq.filter(|core| allowed.contains(core));
                    irq.or_else(|| near.get(shard as usize % near.len().max(1)).copied())
                };
                shards.map(of).collect()
            }
        })
    }
}

/// The processors that this process may run on.
pub(crate) fn allowed() -> io::Result<Vec<u32>> {
    let set = sched_getaffinity(None)?;
    let all = (0..CpuSet::MAX_CPU).filter(|cpu| set.is_set(*cpu));
    Ok(all.filter_map(|cpu| u32::try_from(cpu).ok()).collect())
}

/// Those of `allowed` that are of the interface's NUMA node; all when there are none, or it has none.
fn near(root: &Path, interface: &str, allowed: &[u32]) -> Vec<u32> {
    let of_node = || {
        let node = root.join(format!("sys/class/net/{interface}/device/numa_node"));
        let node: u32 = std::fs::read_to_string(node).ok()?.trim().parse().ok()?;
        let list = root.join(format!("sys/devices/system/node/node{node}/cpulist"));
        let text = std::fs::read_to_string(list).ok()?;
        text.trim().parse::<NumberList>().ok()
    };
    let node = of_node().map(|list| list.0).unwrap_or_default();
    let near: Vec<_> = allowed
        .iter()
        .filter(|cpu| node.contains(cpu))
        .copied()
        .collect();
    match near.is_empty() {
        true => allowed.to_vec(),
        false => near,
    }
}

/// Has the calling thread stay on a processor, if one is given.
///
/// # Errors
///
/// The kernel's: it has no such processor, or this process may not run there.
pub(crate) fn runs_on(core: Option<u32>) -> io::Result<()> {
    core.map_or(Ok(()), |core| stays_on(&[core]))
}

fn stays_on(cores: &[u32]) -> io::Result<()> {
    let mut set = CpuSet::new();
    for core in cores {
        if *core as usize >= CpuSet::MAX_CPU {
            return Err(io::Error::from(io::ErrorKind::InvalidInput));
        }
        set.set(*core as usize);
    }
    sched_setaffinity(None, &set).map_err(|error| {
        let shown: Vec<_> = cores.iter().map(u32::to_string).collect();
        let shown = shown.join(",");
        io::Error::new(
            io::Error::from(error).kind(),
            format!(
                "processor {shown} for a shard's thread: {error} (see `taskset -p`, `lscpu -e`)"
            ),
        )
    })
}

/// The calling thread stays on these processors until this is dropped; none given, it goes on as before.
#[derive(Debug)]
pub(crate) struct Stay(Option<CpuSet>);

impl Stay {
    pub(crate) fn on(cores: &[Option<u32>]) -> io::Result<Self> {
        let cores: Vec<u32> = cores.iter().flatten().copied().collect();
        if cores.is_empty() {
            return Ok(Self(None));
        }
        let before = sched_getaffinity(None)?;
        stays_on(&cores)?;
        Ok(Self(Some(before)))
    }
}

impl Drop for Stay {
    fn drop(&mut self) {
        if let Some(before) = &self.0 {
            // It ran there before.
            let _ = sched_setaffinity(None, before);
        }
    }
}

#[cfg(test)]
mod tests;
