//! The same unmodified program at both ends: Debian's libraries over siw in the peer, this build's library
//! over the RNIC here.

use std::net::IpAddr;
use std::time::Duration;

use rnic_tests::interop::Interop;
use rnic_tests::lab::{Family, Finished};
use rnic_tests::peer::Ran;
use rnic_tests::programs::{self, Library};

/// How long either end may take. The peer may be emulated.
const LIMIT: Duration = Duration::from_secs(60);

/// How often both ends are begun anew when [`Stand::run`] learns of an end that came too early.
const ATTEMPTS: u16 = 5;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Client {
    Us,
    Siw,
}

/// A program that has ended at one of the ends.
#[derive(Debug)]
pub struct Ended {
    pub stdout: String,
    good: bool,
    whole: String,
}

/// A client and its server, ended.
#[derive(Debug)]
pub struct Both {
    pub client: Ended,
    pub server: Ended,
}

/// An RNIC with programs of the verbs, and the peer with theirs.
pub struct Stand {
    pub interop: Interop,
    library: Library,
}

impl Stand {
    pub fn new(name: &str) -> Self {
        Self::over(Interop::new(name))
    }

    /// The same with a peer that was set up in another way.
    pub fn over(interop: Interop) -> Self {
        let library = Library::new(&interop.lab);
        Self { interop, library }
    }

    pub fn server(&self, client: Client, family: Family) -> IpAddr {
        let at = match client {
            Client::Us => self.interop.peer.address(family, 0),
            Client::Siw => self.interop.host.address(family, 0),
        };
        at.ip()
    }

    /// Runs a server that listens on the port and a client that connects to it, to the good end of both.
    #[track_caller]
    pub fn run(&self, client: Client, port: u16, lines: [&str; 2]) -> Both {
        let both = self.attempt(client, port, lines, |_| false);
        both.expect("it was not to be begun anew")
    }

    /// The same for a server that listens a second time and does not tell its client when, as perftest's does.
    /// A client that comes there too early is rejected, and both start over on the next port.
    #[track_caller]
    pub fn run_perftest(&self, client: Client, port: u16, line: &str) -> Both {
        let at = self.server(client, Family::V4);
        let found = (port..port + ATTEMPTS).find_map(|port| {
            let server = format!("{line} -p {port}");
            let lines = [&*server, &format!("{server} {at}")];
            self.attempt(client, port, lines, |client| {
                client.whole.contains("RDMA_CM_EVENT_REJECTED")
            })
        });
        found.unwrap_or_else(|| panic!("{line}: the client was rejected {ATTEMPTS} times"))
    }

    /// None when the client says that both are to start over.
    #[track_caller]
    fn attempt(
        &self,
        client: Client,
        port: u16,
        [server_line, client_line]: [&str; 2],
        again: impl Fn(&Ended) -> bool,
    ) -> Option<Both> {
        let Self { interop, library } = self;
        let (client, server) = match client {
            Client::Us => {
                let server = interop.peer.listen(port, server_line);
                let client = library.command(&interop.daemon, client_line).limit(LIMIT);
                let client = Ended::from(client.run());
                if again(&client) {
                    return None;
                }
                (client, Ended::from(server.finish(LIMIT)))
            }
            Client::Siw => {
                let server = library.command(&interop.daemon, server_line).spawn();
                programs::wait_for_listener(&interop.daemon);
                let client = Ended::from(interop.peer.start(client_line).finish(LIMIT));
                if again(&client) {
                    return None;
                }
                (client, Ended::from(server.finish(LIMIT)))
            }
        };
        assert!(
            client.good && server.good,
            "{}\n{}",
            client.whole,
            server.whole
        );
        Some(Both { client, server })
    }
}

impl From<Finished> for Ended {
    fn from(program: Finished) -> Self {
        Self {
            good: program.status.success(),
            whole: program.to_string(),
            stdout: program.stdout,
        }
    }
}

impl From<Ran> for Ended {
    fn from(program: Ran) -> Self {
        Self {
            good: program.code == 0,
            whole: program.to_string(),
            stdout: program.stdout,
        }
    }
}
