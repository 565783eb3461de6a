//! A `tcp-pipe` on a host of the lab, and the kernel's end of its connection.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::process::{ChildStdin, ChildStdout};
use std::time::Duration;

use rnic_tests::binary;
use rnic_tests::lab::{Command, Family, Finished, Host, INTERFACE, Lab, LinkOptions, Process};
use rnic_tests::wait;

/// How long anything may take.
pub const LIMIT: Duration = Duration::from_secs(60);
/// Where the one that waits waits.
pub const PORT: u16 = 4000;

/// Our end of a connection.
pub struct Pipe {
    pub process: Process,
    pub stdin: Option<ChildStdin>,
    pub stdout: Option<ChildStdout>,
}

/// Which end `tcp-pipe` is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    Listens,
    Connects,
}

impl Role {
    pub const BOTH: [Self; 2] = [Self::Listens, Self::Connects];
}

/// Two hosts, the first for `tcp-pipe`.
pub fn hosts(name: &str) -> (Lab, Host, Host) {
    hosts_of_mtu(name, 1500)
}

/// The same on a link of this MTU.
pub fn hosts_of_mtu(name: &str, mtu: u32) -> (Lab, Host, Host) {
    let mut lab = Lab::new(name);
    let link = LinkOptions {
        mtu,
        ..LinkOptions::default()
    };
    let (us, them) = lab.pair(&link);
    (lab, us, them)
}

/// A `tcp-pipe` that is yet to be started.
pub fn command(host: &Host, more: &[&str]) -> Command {
    host.namespace
        .command(binary::path("tcp-pipe"))
        .args(["--interface", INTERFACE])
        .args(more)
        .limit(LIMIT)
}

/// Waits at `at`.
pub fn listen(host: &Host, at: SocketAddr, more: &[&str]) -> Pipe {
    let command = command(host, more).args(["--listen", &at.to_string()]);
    let mut pipe = Pipe::start(command);
    wait::until("tcp-pipe listens", LIMIT, || {
        if let Some(status) = pipe.process.status() {
            panic!("tcp-pipe ended: {status}\n{}", pipe.process.stderr());
        }
        let said = pipe.process.stderr().contains("listening on");
        said.then_some(())
    });
    pipe
}

/// Goes to `to`.
pub fn connect(host: &Host, to: SocketAddr, more: &[&str]) -> Pipe {
    Pipe::start(command(host, more).args(["--connect", &to.to_string()]))
}

/// A connection between `tcp-pipe` on `us` and the kernel of `them`.
pub fn joined(
    us: &Host,
    them: &Host,
    family: Family,
    role: Role,
    more: &[&str],
) -> (Pipe, TcpStream) {
    let (pipe, stream) = match role {
        Role::Listens => {
            let at = us.address(family, PORT);
            let pipe = listen(us, at, more);
            let stream = them
                .namespace
                .in_thread(|| TcpStream::connect_timeout(&at, LIMIT).unwrap());
            (pipe, stream)
        }
        Role::Connects => {
            let listener = kernel_listener(them, family);
            let pipe = connect(us, listener.local_addr().unwrap(), more);
            (pipe, listener.accept().unwrap().0)
        }
    };
    stream.set_read_timeout(Some(LIMIT)).unwrap();
    stream.set_write_timeout(Some(LIMIT)).unwrap();
    (pipe, stream)
}

/// The kernel of `host` waits.
pub fn kernel_listener(host: &Host, family: Family) -> TcpListener {
    let at = host.address(family, PORT);
    host.namespace.in_thread(|| TcpListener::bind(at).unwrap())
}

impl Pipe {
    fn start(command: Command) -> Self {
        let (process, stdin, stdout) = command.spawn_piped();
        Self {
            process,
            stdin: Some(stdin),
            stdout: Some(stdout),
        }
    }

    pub fn write(&mut self, bytes: &[u8]) {
        self.stdin.as_mut().unwrap().write_all(bytes).unwrap();
    }

    /// The end of standard input.
    pub fn end(&mut self) {
        self.stdin = None;
    }

    pub fn read_exact(&mut self, bytes: usize) -> Vec<u8> {
        let mut found = vec![0; bytes];
        self.stdout
            .as_mut()
            .unwrap()
            .read_exact(&mut found)
            .unwrap();
        found
    }

    /// Everything up to the end of standard output.
    pub fn read_to_end(&mut self) -> Vec<u8> {
        let mut found = Vec::new();
        self.stdout
            .as_mut()
            .unwrap()
            .read_to_end(&mut found)
            .unwrap();
        found
    }

    /// Writes `send`, ends, and reads to the end, all at the same time.
    pub fn both_ways(&mut self, send: &[u8]) -> Vec<u8> {
        let mut stdin = self.stdin.take().unwrap();
        std::thread::scope(|scope| {
            scope.spawn(move || {
                for chunk in send.chunks(50_021) {
                    stdin.write_all(chunk).unwrap();
                }
            });
            self.read_to_end()
        })
    }

    /// Waits for its end.
    pub fn finish(self) -> Finished {
        let Self {
            process,
            stdin,
            stdout,
        } = self;
        let finished = process.finish(LIMIT);
        drop((stdin, stdout));
        finished
    }
}
