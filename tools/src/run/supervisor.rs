//! The supervisor of a private daemon: a process that ends `rnicd` and removes its directory when `rnic-run`
//! is gone, also when that was killed. It knows by its standard input, a pipe from `rnic-run`, which
//! the kernel closes then. It is in a process group of its own, so that Ctrl-C reaches the program and not
//! the daemon that the program still needs.

use std::ffi::OsString;
use std::fs::File;
use std::io::{BufRead, BufReader, Read, Seek, SeekFrom, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, ExitCode, Stdio};
use std::time::{Duration, Instant};

use rnic::Daemon;
use rnic::find::SOCKET_NAME;
use rnic::find::{RUNTIME_VARIABLE, directory, variable};
use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::process::{Pid, PidfdFlags, kill_process, pidfd_open};
use tempfile::TempDir;

use super::{RunError, host, signals, start};

/// The option by which `rnic-run` becomes the supervisor of the `rnicd` that follows.
pub const OPTION: &str = "--keep-private-daemon";

/// The variable that names a directory for temporary files, and the one where none is named.
const TEMPORARY_VARIABLE: &str = "TMPDIR";
const TEMPORARY: &str = "/tmp";

/// How long a daemon may take until it answers.
const READY_LIMIT: Duration = Duration::from_secs(30);
/// How often it is asked.
const READY_INTERVAL: Duration = Duration::from_millis(2);
/// How long it may take to end in order.
const END_LIMIT: Duration = Duration::from_secs(2);
/// How much of its log is shown when it failed, in bytes.
const LOG_TAIL: u64 = 4096;

/// `rnic-run`'s hold on the supervisor. Dropping it ends the daemon.
#[derive(Debug)]
pub(super) struct Supervisor {
    process: Child,
    /// Closing it is the word to end.
    hold: Option<ChildStdin>,
    socket: PathBuf,
}

impl Supervisor {
    /// Starts it and waits until the daemon answers.
    pub(super) fn start(rnicd: &Path, arguments: &[String]) -> Result<Self, RunError> {
        let mut process = Command::new("/proc/self/exe")
            .arg0("rnic-run")
            .arg(OPTION)
            .arg(rnicd)
            .args(arguments)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .process_group(0)
            .spawn()
            .map_err(host("starting the supervisor of the private daemon"))?;
        let hold = process.stdin.take();
        let told = process.stdout.take();
        let mut supervisor = Self {
            process,
            hold,
            socket: PathBuf::new(),
        };
        let mut line = Vec::new();
        if let Some(told) = told {
            let read = BufReader::new(told).read_until(0, &mut line);
            read.map_err(host("reading from the supervisor of the private daemon"))?;
        }
        // Without the end of the line it has failed, and has said why.
        if line.pop() != Some(0) {
            return Err(RunError::NotStarted);
        }
        supervisor.socket = PathBuf::from(OsString::from_vec(line));
        Ok(supervisor)
    }

    /// The private daemon's socket.
    pub(super) fn socket(&self) -> &Path {
        &self.socket
    }

    /// Ends the daemon and waits until it is gone.
    pub(super) fn end(self) {
        drop(self);
    }
}

impl Drop for Supervisor {
    fn drop(&mut self) {
        self.hold = None;
        // It ends within END_LIMIT.
        let _ = self.process.wait();
    }
}

/// What the supervisor does: starts `rnicd` with these arguments, tells the path of its socket on standard output, and waits until
/// standard input is closed.
pub fn supervise(rnicd: &Path, arguments: impl Iterator<Item = OsString>) -> ExitCode {
    match Private::start(rnicd, arguments).and_then(|private| private.serve()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(told) => {
            crate::errln!("rnic-run: {told}");
            ExitCode::FAILURE
        }
    }
}

/// The daemon, in a directory that nobody else may enter.
struct Private {
    daemon: Child,
    /// Readable when the daemon has ended.
    ended: OwnedFd,
    directory: TempDir,
}

/// What the supervisor waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Woken {
    /// `rnic-run` is gone, or has closed the pipe.
    Released,
    Ended,
    /// Time is up.
    Late,
}

impl Private {
    fn start(rnicd: &Path, arguments: impl Iterator<Item = OsString>) -> Result<Self, String> {
        // The supervisor ends when `rnic-run` does, and not before: a program that signals all processes of a
        // session or a container means the others.
        signals::block().map_err(failed("sigprocmask"))?;
        let directory = directory()?;
        let log = File::create(directory.path().join("log")).map_err(failed("its log"))?;
        let errors = log.try_clone().map_err(failed("its log"))?;
        let daemon = start::command(rnicd.as_os_str())
            .args(arguments)
            .args(["--private", "--socket"])
            .arg(directory.path().join(SOCKET_NAME))
            .stdin(Stdio::null())
            .stdout(log)
            .stderr(errors)
            .spawn()
            .map_err(|error| format!("can't start {}: {error}", rnicd.display()))?;
        let pid = pid(&daemon).ok_or("the daemon has no process id")?;
        let ended = pidfd_open(pid, PidfdFlags::empty());
        let ended = ended.map_err(|errno| failed("pidfd_open")(errno.into()))?;
        let mut private = Self {
            daemon,
            ended,
            directory,
        };
        private.wait_until_ready()?;
        Ok(private)
    }

    fn socket(&self) -> PathBuf {
        self.directory.path().join(SOCKET_NAME)
    }

    fn wait_until_ready(&mut self) -> Result<(), String> {
        let deadline = Instant::now() + READY_LIMIT;
        while Daemon::at(self.socket()).is_err() {
            match self.wait(Some(READY_INTERVAL))? {
                Woken::Late if Instant::now() < deadline => {}
                Woken::Late => return Err(self.why(&format!("did not answer for {READY_LIMIT:?}"))),
                Woken::Ended => return Err(self.why("ended")),
                Woken::Released => return Err("rnic-run is gone".into()),
            }
        }
        Ok(())
    }

    fn serve(self) -> Result<(), String> {
        let mut line = self.socket().as_os_str().as_bytes().to_vec();
        line.push(0);
        let mut out = std::io::stdout();
        let told = out.write_all(&line).and_then(|()| out.flush());
        told.map_err(failed("standard output"))?;
        match self.wait(None)? {
            Woken::Ended => Err(self.why("ended before the program")),
            Woken::Released | Woken::Late => Ok(()),
        }
    }

    /// Waits for something to happen, or so long.
    fn wait(&self, limit: Option<Duration>) -> Result<Woken, String> {
        let input = std::io::stdin();
        let mut fds = [
            // Nothing is ever written: an end is all that comes.
            PollFd::from_borrowed_fd(input.as_fd(), PollFlags::IN),
            PollFd::new(&self.ended, PollFlags::IN),
        ];
        let limit = limit.and_then(|limit| Timespec::try_from(limit).ok());
        // All signals that could interrupt it are blocked.
        rustix::event::poll(&mut fds, limit.as_ref())
            .map_err(|errno| failed("poll")(errno.into()))?;
        let [input, ended] = fds.map(|fd| !fd.revents().is_empty());
        Ok(match (input, ended) {
            (true, _) => Woken::Released,
            (false, true) => Woken::Ended,
            (false, false) => Woken::Late,
        })
    }

    /// What went wrong with the daemon, with the end of its log.
    fn why(&self, what: &str) -> String {
        let log = self.log().unwrap_or_default();
        format!("the private RNIC daemon {what}\n{}", log.trim_end())
    }

    fn log(&self) -> std::io::Result<String> {
        let mut file = File::open(self.directory.path().join("log"))?;
        let length = file.metadata()?.len();
        file.seek(SeekFrom::Start(length.saturating_sub(LOG_TAIL)))?;
        let mut tail = Vec::new();
        file.take(LOG_TAIL).read_to_end(&mut tail)?;
        Ok(String::from_utf8_lossy(&tail).into_owned())
    }
}

impl Drop for Private {
    fn drop(&mut self) {
        if let Some(pid) = pid(&self.daemon) {
            let _ = kill_process(pid, rustix::process::Signal::TERM);
        }
        let mut fds = [PollFd::new(&self.ended, PollFlags::IN)];
        let limit = Timespec::try_from(END_LIMIT).ok();
        let ended = rustix::event::poll(&mut fds, limit.as_ref());
        if ended != Ok(1) {
            let _ = self.daemon.kill();
        }
        let _ = self.daemon.wait();
    }
}

fn pid(child: &Child) -> Option<Pid> {
    Pid::from_raw(child.id().cast_signed())
}

/// A new directory of mode 0700, where no other user can replace it: in the user's runtime directory, or else
/// where temporary files are.
fn directory() -> Result<TempDir, String> {
    let mut builder = tempfile::Builder::new();
    builder.prefix("rnic-run-");
    builder.permissions(PermissionsExt::from_mode(0o700));
    let runtime = rnic::find::runtime_socket();
    let runtime = runtime.as_deref().and_then(Path::parent);
    if let Some(own) = runtime.and_then(|runtime| directory::own(runtime).ok())
        && let Ok(made) = builder.tempdir_in(own)
    {
        return Ok(made);
    }
    let named = variable(TEMPORARY_VARIABLE).map(PathBuf::from);
    let named = named.filter(|named| named.is_absolute());
    let places = named.into_iter().chain([PathBuf::from(TEMPORARY)]);
    let mut found = Vec::new();
    for place in places {
        let made = directory::for_own_files(&place).map_err(|error| error.to_string());
        match made.and_then(|own| builder.tempdir_in(own).map_err(|error| error.to_string())) {
            Ok(made) => return Ok(made),
            Err(error) => found.push(format!("{}: {error}", place.display())),
        }
    }
    Err(format!(
        "the private RNIC daemon did not start: no directory for its socket: {}; set {RUNTIME_VARIABLE} to a \
         directory of this user's with mode 0700",
        found.join("; ")
    ))
}

fn failed(what: &'static str) -> impl Fn(std::io::Error) -> String {
    move |error| format!("the private RNIC daemon did not start: {what}: {error}")
}
