//! Commands that run in the peer.

use std::fs;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::machine::Share;
use crate::wait;

/// How long the machine may take to begin a command that is to be killed.
const KILL_LIMIT: Duration = Duration::from_secs(10);

/// A command in the peer that runs, or has ended. Dropping it kills what still runs of it.
#[derive(Debug)]
pub struct Job {
    share: Arc<Share>,
    directory: PathBuf,
    command: String,
    begin: Instant,
}

impl Job {
    pub(super) fn start(share: &Arc<Share>, command: &str) -> Self {
        let directory = share.job();
        fs::write(directory.join("cmd"), format!("{command}\n")).expect("the job can be written");
        let job = Self {
            share: Arc::clone(share),
            directory,
            command: command.to_owned(),
            begin: Instant::now(),
        };
        let rung = job.share.ring(&job.directory);
        rung.unwrap_or_else(|error| panic!("the peer hears of no `{command}`: {error}"));
        job
    }

    /// What it has written to standard output until now.
    #[must_use]
    pub fn stdout(&self) -> String {
        self.text("out")
    }

    /// What it has written to standard error until now.
    #[must_use]
    pub fn stderr(&self) -> String {
        self.text("err")
    }

    /// Its result, if it has ended.
    #[must_use]
    pub fn ended(&self) -> Option<Ran> {
        let code = fs::read_to_string(self.directory.join("rc")).ok()?;
        Some(Ran {
            code: code.trim().parse().expect("an exit code is a number"),
            stdout: self.stdout(),
            stderr: self.stderr(),
            took: self.begin.elapsed(),
            command: self.command.clone(),
        })
    }

    /// Waits for its end; panics when that takes longer than the limit.
    pub fn finish(self, limit: Duration) -> Ran {
        let deadline = Instant::now() + limit;
        loop {
            if let Some(ran) = self.ended() {
                return ran;
            }
            assert!(
                Instant::now() < deadline,
                "`{}` did not end in the peer within {limit:?}\nstdout:\n{}\nstderr:\n{}",
                self.command,
                self.stdout(),
                self.stderr()
            );
            std::thread::sleep(wait::INTERVAL);
        }
    }

    /// Sends SIGKILL to all its processes, once they are there.
    pub fn kill(&self) {
        let pid = self.directory.join("pid");
        let deadline = Instant::now() + KILL_LIMIT;
        let group = loop {
            match fs::read_to_string(&pid) {
                Ok(group) => break group,
                // So the machine is gone, and with it the command.
                Err(_) if Instant::now() > deadline => return,
                Err(_) => std::thread::sleep(wait::INTERVAL),
            }
        };
        let killer = self.share.job();
        fs::write(killer.join("cmd"), format!("kill -KILL -- -{group}"))
            .expect("the job can be written");
        // When the machine is gone, so is the command.
        let _ = self.share.ring(&killer);
    }

    fn text(&self, name: &str) -> String {
        let bytes = fs::read(self.directory.join(name)).unwrap_or_default();
        String::from_utf8_lossy(&bytes).into_owned()
    }
}

impl Drop for Job {
    fn drop(&mut self) {
        if self.ended().is_none() {
            self.kill();
        }
    }
}

/// A command that has ended in the peer.
#[derive(Clone, Debug)]
pub struct Ran {
    /// Its exit code; 128 and the signal's number when one killed it.
    pub code: i32,
    /// All that it wrote to standard output.
    pub stdout: String,
    /// All that it wrote to standard error.
    pub stderr: String,
    /// Time since it was started.
    pub took: Duration,
    command: String,
}

impl Ran {
    /// Panics unless it ended with exit code 0.
    #[track_caller]
    #[must_use]
    pub fn success(self) -> Self {
        assert!(self.code == 0, "failed in the peer: {self}");
        self
    }

    /// Panics unless it ended with another exit code.
    #[track_caller]
    #[must_use]
    pub fn failure(self) -> Self {
        assert!(self.code != 0, "should have failed in the peer: {self}");
        self
    }
}

impl std::fmt::Display for Ran {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self {
            code,
            stdout,
            stderr,
            command,
            ..
        } = self;
        write!(
            f,
            "`{command}`: exit code {code}\nstdout:\n{stdout}\nstderr:\n{stderr}"
        )
    }
}
