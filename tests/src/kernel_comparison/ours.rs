//! Our end: `tcp-pipe`, its standard input or output at this process.

use std::io::{BufRead, BufReader, Write};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread::JoinHandle;

use serde_json::Value;

use super::kernel::{Digest, Stream, hash};
use crate::binary;
use crate::lab::{INTERFACE, Namespace};

/// A `tcp-pipe` on a host; killed when dropped before its end.
struct Pipe {
    child: Child,
    stats: PathBuf,
    /// What it says on standard error.
    log: JoinHandle<String>,
}

impl Pipe {
    /// Starts it, and waits until it listens if it is to.
    fn start(host: &Namespace, directory: &Path, role: &[&str]) -> Self {
        let stats = directory.join("tcp-pipe.json");
        let mut child = Command::new("ip")
            .args(["netns", "exec", host.name()])
            .arg(binary::path("tcp-pipe"))
            .args(["--interface", INTERFACE, "--stats"])
            .arg(&stats)
            .args(role)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("ip of iproute2 is installed");
        let mut lines = BufReader::new(child.stderr.take().expect("it is piped"));
        let mut log = String::new();
        if role.contains(&"--listen") {
            while !log.contains("listening") {
                let read = lines.read_line(&mut log).expect("text comes from it");
                assert!(read > 0, "tcp-pipe does not listen: {log}");
            }
        }
        let log = std::thread::spawn(move || {
            while lines.read_line(&mut log).is_ok_and(|read| read > 0) {}
            log
        });
        Self { child, stats, log }
    }

    /// Waits for its end, which must be a good one; its figures.
    fn finish(mut self) -> Value {
        let status = self.child.wait().expect("the child is ours to wait for");
        let log = std::mem::replace(&mut self.log, std::thread::spawn(String::new));
        let log = log.join().unwrap_or_default();
        assert!(status.success(), "tcp-pipe: {status}: {log}");
        let text = std::fs::read_to_string(&self.stats).expect("it wrote its figures");
        serde_json::from_str(&text).unwrap_or_else(|error| panic!("no JSON ({error}): {text}"))
    }
}

impl Drop for Pipe {
    fn drop(&mut self) {
        // Does nothing to one that has ended and was waited for.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Sends a stream from a host; what `tcp-pipe` counted.
pub(super) fn send(host: &Namespace, directory: &Path, to: SocketAddr, stream: Stream) -> Value {
    let to = to.to_string();
    let mut pipe = Pipe::start(host, directory, &["--send-only", "--connect", &to]);
    let mut input = pipe.child.stdin.take().expect("it is piped");
    let written = stream.write(|bytes| input.write_all(bytes));
    drop(input);
    // An end before the stream's end is told better by what it said.
    let stats = pipe.finish();
    written.expect("tcp-pipe takes all bytes");
    stats
}

pub(super) struct Receiver {
    pipe: Pipe,
    hash: JoinHandle<std::io::Result<(Digest, u64)>>,
}

impl Receiver {
    /// The stream's hash, and what `tcp-pipe` counted.
    pub fn finish(self, bytes: u64) -> (Digest, Value) {
        let stats = self.pipe.finish();
        let hashed = self
            .hash
            .join()
            .unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        let (digest, got) = hashed.expect("tcp-pipe gives bytes");
        assert_eq!(got, bytes, "the stream ended early");
        (digest, stats)
    }
}

pub(super) fn receive(host: &Namespace, directory: &Path, at: SocketAddr) -> Receiver {
    let at = at.to_string();
    let mut pipe = Pipe::start(host, directory, &["--recv-only", "--listen", &at]);
    let output = pipe.child.stdout.take().expect("it is piped");
    Receiver {
        pipe,
        hash: std::thread::spawn(move || hash(output)),
    }
}
