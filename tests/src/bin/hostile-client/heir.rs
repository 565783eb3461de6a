//! Two processes with one session, as after fork(2): the second gets all descriptors of the first
//! and does with them what it likes, also when the first is gone.

use std::os::fd::{AsFd, OwnedFd};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use rnic_ipc::shm::SharedMemory;
use rnic_ipc::transport::Channel;
use rustix::net::SendFlags;

use crate::chance::Chance;
use crate::objects::Objects;
use crate::scribble;

/// The longest that the second lives.
const LONGEST: u64 = 300;

/// Starts a second process with everything that this one has; `None` when the host says no.
pub fn hand_over(chance: &mut Chance, own: &Objects) -> Option<Child> {
    let (ours, theirs) = Channel::pair().ok()?;
    let mut command = Command::new(std::env::current_exe().ok()?);
    command.args(["--socket", "/", "--other", "/", "--address", "0.0.0.0:0"]);
    command.args(["--heir", "--seed", &chance.next().to_string()]);
    command.stdin(Stdio::from(theirs.into_fd()));
    command.stdout(Stdio::null()).stderr(Stdio::null());
    let child = command.spawn().ok()?;
    for fds in own.descriptors().chunks(4) {
        ours.send(&true, fds).ok()?;
    }
    ours.send(&false, &[]).ok()?;
    Some(child)
}

/// The second process.
pub fn inherit(mut chance: Chance) {
    let Ok(stdin) = std::io::stdin().as_fd().try_clone_to_owned() else {
        return;
    };
    let channel = Channel::from_fd(stdin);
    let mut all: Vec<OwnedFd> = Vec::new();
    while let Ok(Some((true, fds))) = channel.recv::<bool>() {
        all.extend(fds);
    }
    let mut shared = Vec::new();
    for fd in &all {
        let size = rustix::fs::fstat(fd).map_or(0, |stat| stat.st_size);
        let memory = SharedMemory::map(fd, 0, size.unsigned_abs());
        if let (Ok(memory), Ok(fd)) = (memory, fd.try_clone()) {
            shared.push((fd, Arc::new(memory)));
        }
    }
    let end = Instant::now() + Duration::from_millis(chance.below(LONGEST));
    while Instant::now() < end {
        if let Some((_, memory)) = chance.pick(&shared) {
            scribble::entries(&mut chance, memory);
        }
        match chance.below(40) {
            0 => scribble::resize(&mut chance, &shared),
            // Between the requests of the first, whose replies go to whoever reads them.
            1 => {
                let bytes = chance.bytes(64);
                if let Some(fd) = all.first() {
                    let flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
                    let _ = rustix::net::send(fd, &bytes, flags);
                }
            }
            2 => std::thread::sleep(Duration::from_millis(1)),
            _ => {}
        }
    }
}
