//! Programs that run in the lab: their output goes to files in the lab's directory, every wait has
//! an end, and dropping a [`Process`] kills it (and only it) and waits for its end.

use std::ffi::OsStr;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, kill_process, waitid};

use super::namespace::Namespace;
use crate::wait;

/// How long [`Command::run`] waits when nothing else is said.
const DEFAULT_LIMIT: Duration = Duration::from_secs(60);
/// How long a program may take to end after SIGTERM.
const TERMINATE_LIMIT: Duration = Duration::from_secs(30);

/// A program about to be started in a namespace.
#[derive(Debug)]
pub struct Command {
    command: std::process::Command,
    label: String,
    namespace: Namespace,
    limit: Duration,
}

impl Command {
    pub(super) fn new(program: &str, label: String, namespace: Namespace) -> Self {
        Self {
            command: std::process::Command::new(program),
            label,
            namespace,
            limit: DEFAULT_LIMIT,
        }
    }

    #[must_use]
    pub fn arg(mut self, argument: impl AsRef<OsStr>) -> Self {
        self.command.arg(argument);
        self
    }

    #[must_use]
    pub fn args(mut self, arguments: impl IntoIterator<Item = impl AsRef<OsStr>>) -> Self {
        self.command.args(arguments);
        self
    }

    /// Names the log files.
    #[must_use]
    pub fn label(mut self, label: &str) -> Self {
        self.label = label.to_owned();
        self
    }

    /// How long [`Self::run`] waits, instead of a minute.
    #[must_use]
    pub fn limit(mut self, limit: Duration) -> Self {
        self.limit = limit;
        self
    }

    /// Starts it in the background.
    #[must_use]
    pub fn spawn(mut self) -> Process {
        self.command.stdin(Stdio::null());
        self.start(|out| out.into())
    }

    /// Starts it in the background with pipes for standard input and output.
    #[must_use]
    pub fn spawn_piped(mut self) -> (Process, ChildStdin, ChildStdout) {
        self.command.stdin(Stdio::piped());
        let mut process = self.start(|_| Stdio::piped());
        let stdin = process.child.stdin.take().expect("a pipe was asked for");
        let stdout = process.child.stdout.take().expect("a pipe was asked for");
        (process, stdin, stdout)
    }

    /// Starts it with what `stdout` makes of the log file for standard output.
    fn start(mut self, stdout: impl FnOnce(File) -> Stdio) -> Process {
        let (out, err) = self.namespace.shared().log_files(&self.label);
        let create = |path: &Path| {
            File::create(path).unwrap_or_else(|e| panic!("can't create {}: {e}", path.display()))
        };
        let line = format!("{:?}", self.command);
        let child = self
            .command
            .stdout(stdout(create(&out)))
            .stderr(create(&err))
            .spawn()
            .unwrap_or_else(|error| panic!("can't start {line}: {error}"));
        Process {
            child,
            line,
            out,
            err,
            status: None,
        }
    }

    /// Runs it to its end and gives the result, good or bad; panics when it takes longer than the limit.
    pub fn run(self) -> Finished {
        let limit = self.limit;
        self.spawn().finish(limit)
    }
}

/// A program that is running, or has ended.
#[derive(Debug)]
pub struct Process {
    child: Child,
    line: String,
    out: PathBuf,
    err: PathBuf,
    status: Option<ExitStatus>,
}

impl Process {
    /// The exit status, if it has ended.
    pub fn status(&mut self) -> Option<ExitStatus> {
        if self.status.is_none() {
            self.status = self
                .child
                .try_wait()
                .expect("the child is ours to wait for");
        }
        self.status
    }

    /// Whether it is still running.
    pub fn running(&mut self) -> bool {
        self.status().is_none()
    }

    /// What it has written to standard output until now.
    #[must_use]
    pub fn stdout(&self) -> String {
        read(&self.out)
    }

    /// What it has written to standard error until now.
    #[must_use]
    pub fn stderr(&self) -> String {
        read(&self.err)
    }

    #[must_use]
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// Sends a signal, unless it has ended.
    pub fn signal(&mut self, signal: Signal) {
        if self.running()
            && let Some(pid) = Pid::from_raw(self.child.id().cast_signed())
        {
            kill_process(pid, signal).expect("a child that was not waited for can be signalled");
        }
    }

    /// Whether it has stopped, by a signal, since this was asked last.
    pub fn has_stopped(&mut self) -> bool {
        let looks = WaitIdOptions::STOPPED | WaitIdOptions::NOHANG;
        let pid = Pid::from_raw(self.child.id().cast_signed()).filter(|_| self.running());
        pid.is_some_and(|pid| matches!(waitid(WaitId::Pid(pid), looks), Ok(Some(_))))
    }

    /// Waits for its end; panics when it takes longer than `limit`.
    pub fn finish(self, limit: Duration) -> Finished {
        let ended = self.end_within(limit, || false);
        ended.unwrap_or_else(|late| panic!("{late}"))
    }

    /// Waits for its end. When that takes longer than `limit`, or `stop` says that nobody wants it any
    /// more, it is killed.
    ///
    /// # Errors
    ///
    /// What was killed, why, and what it had written until then.
    pub fn end_within(
        mut self,
        limit: Duration,
        stop: impl Fn() -> bool,
    ) -> Result<Finished, String> {
        let begin = Instant::now();
        let status = loop {
            if let Some(status) = self.status() {
                break status;
            }
            let why = if stop() {
                "was interrupted".to_owned()
            } else if begin.elapsed() >= limit {
                format!("did not end within {limit:?}")
            } else {
                std::thread::sleep(Duration::from_millis(2));
                continue;
            };
            self.kill();
            return Err(format!("{} {why}\n{}", self.line, self.output()));
        };
        Ok(Finished {
            status,
            stdout: self.stdout(),
            stderr: self.stderr(),
            line: self.line.clone(),
            took: begin.elapsed(),
        })
    }

    /// Waits until it has written `word` to standard output or standard error.
    ///
    /// # Errors
    ///
    /// What was waited for, and what it wrote instead: it has ended, or it did not in `limit`.
    pub fn says(&mut self, word: &str, limit: Duration) -> Result<(), String> {
        let begin = Instant::now();
        loop {
            let ended = self.status();
            let said = self.stdout().contains(word) || self.stderr().contains(word);
            let why = match ended {
                Some(status) => format!("ended: {status}"),
                None if said => return Ok(()),
                None if begin.elapsed() >= limit => format!("did not for {limit:?}"),
                None => {
                    std::thread::sleep(wait::INTERVAL);
                    continue;
                }
            };
            let output = self.output();
            return Err(format!(
                "{} was to say {word:?}, and {why}\n{output}",
                self.line
            ));
        }
    }

    /// Asks it to end (SIGTERM) and waits until it has.
    pub fn terminate(mut self) -> Finished {
        self.signal(Signal::TERM);
        self.finish(TERMINATE_LIMIT)
    }

    /// Kills it (SIGKILL) and waits until it is gone.
    pub fn kill(&mut self) {
        self.signal(Signal::KILL);
        wait::until(
            &format!("{} is gone after SIGKILL", self.line),
            TERMINATE_LIMIT,
            || self.status(),
        );
    }

    fn output(&self) -> String {
        format!("stdout:\n{}\nstderr:\n{}", self.stdout(), self.stderr())
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        if self.status.is_none() {
            // A failure here can't be reported better than by the test that goes on to fail.
            let _ = self.child.kill();
            let _ = self.child.wait();
        }
    }
}

/// A program that has ended.
#[derive(Clone, Debug)]
pub struct Finished {
    pub status: ExitStatus,
    /// All that it wrote to standard output.
    pub stdout: String,
    /// All that it wrote to standard error.
    pub stderr: String,
    /// How long it was waited for.
    pub took: Duration,
    line: String,
}

impl Finished {
    /// Panics unless it ended with exit code 0.
    #[track_caller]
    #[must_use]
    pub fn success(self) -> Self {
        assert!(self.status.success(), "failed: {self}");
        self
    }

    /// Panics unless it ended by itself with an exit code that is not 0 and without a panic; gives
    /// what it wrote to standard error.
    #[track_caller]
    #[must_use]
    pub fn failure(self) -> String {
        let code = self.status.code();
        assert!(
            code.is_some_and(|code| code != 0),
            "should have failed with an error: {self}"
        );
        assert!(!self.stderr.contains("panicked at"), "panicked: {self}");
        self.stderr
    }
}

impl std::fmt::Display for Finished {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self {
            status,
            stdout,
            stderr,
            line,
            ..
        } = self;
        write!(f, "{line}: {status}\nstdout:\n{stdout}\nstderr:\n{stderr}")
    }
}

fn read(path: &Path) -> String {
    std::fs::read(path).map_or_else(
        |error| format!("({}: {error})", path.display()),
        |bytes| String::from_utf8_lossy(&bytes).into_owned(),
    )
}
