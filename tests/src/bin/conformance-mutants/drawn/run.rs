//! Runs test binaries of the copy. They are run as they are, without cargo or nextest: a second for a thousand
//! tests of one process. The first test that fails ends it.

use std::io::{BufRead, BufReader};
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, killpg};
use nix::unistd::Pid;

/// Seeds of each random test: fewer than by default.
const SEEDS: &str = "40";

#[derive(Clone, Debug)]
pub struct Binary {
    pub path: PathBuf,
    /// Where cargo would run it.
    pub package: PathBuf,
    /// How long it may take.
    pub limit: Duration,
}

impl Binary {
    /// Its name without the hash.
    fn name(&self) -> String {
        let name = self.path.file_name().unwrap_or_default().to_string_lossy();
        name.rsplit_once('-')
            .map_or(&*name, |(name, _)| name)
            .to_string()
    }

    /// Runs its tests with a mutant: the first that did not pass, if there is one.
    pub fn run(&self, arguments: &[String], mutant: u32) -> Result<Option<String>, String> {
        let mut command = Command::new(&self.path);
        command.args(arguments).current_dir(&self.package);
        command.env("CARGO_MANIFEST_DIR", &self.package);
        command.env("RNIC_MUTANT", mutant.to_string());
        command.env("PROPTEST_DISABLE_FAILURE_PERSISTENCE", "1");
        if std::env::var_os("RNIC_TEST_SEEDS").is_none() {
            command.env("RNIC_TEST_SEEDS", SEEDS);
        }
        command
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::null());
        // A group of its own: what the tests have started ends with them.
        let mut child = command
            .process_group(0)
            .spawn()
            .map_err(|error| format!("{}: {error}", self.path.display()))?;
        let failed = first_failed(&lines(&mut child), Instant::now() + self.limit);
        if failed.is_some() {
            // It may be over already.
            let _ = killpg(Pid::from_raw(child.id() as i32), Signal::SIGKILL);
        }
        let status = child.wait().map_err(|error| error.to_string())?;
        let failed = failed.or((!status.success()).then(|| status.to_string()));
        Ok(failed.map(|what| format!("{} {what}", self.name())))
    }
}

/// What it prints, line by line.
fn lines(child: &mut Child) -> Receiver<String> {
    let (to, lines) = channel();
    if let Some(stdout) = child.stdout.take() {
        std::thread::spawn(move || {
            let mut read = BufReader::new(stdout).lines().map_while(Result::ok);
            read.all(|line| to.send(line).is_ok())
        });
    }
    lines
}

/// `test NAME ... FAILED`; or that the time is over.
fn first_failed(lines: &Receiver<String>, end: Instant) -> Option<String> {
    loop {
        let left = end.saturating_duration_since(Instant::now());
        match lines.recv_timeout(left) {
            Ok(line) => {
                let name = line
                    .strip_suffix(" ... FAILED")
                    .or(line.strip_suffix(" - should panic ... FAILED"));
                if let Some(name) = name.and_then(|name| name.strip_prefix("test ")) {
                    return Some(name.to_string());
                }
            }
            Err(RecvTimeoutError::Timeout) => return Some("takes too long".to_string()),
            Err(RecvTimeoutError::Disconnected) => return None,
        }
    }
}
