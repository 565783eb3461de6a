//! Linux's SCTP in the virtual machine of the interop tests: ours without DDP against its sockets, and an RNIC against
//! the peer in C over them.

use std::net::SocketAddr;

use rnic::{Context, ListenOptions, Listener, Transport};
use rnic_tests::cases::Cases;
use rnic_tests::daemon::{Daemon, DaemonOptions};
use rnic_tests::interop::Interop;
use rnic_tests::lab::Family;
use rnic_tests::peer::Job;
use rnic_tests::sctp_messages::{self, Run};
use rnic_tests::{binary, usrsctp, wait};

use super::homes::Homes;
use super::{LIMIT, PORT, UDP, in_udp, side};

struct Stand {
    interop: Interop,
    context: Context,
}

impl Stand {
    fn new() -> Self {
        let interop = Interop::new("sctp-kernel");
        for program in ["ddp-sctp-peer-kernel", "sctp-messages-kernel"] {
            let to = interop.peer.share().join(program);
            std::fs::copy(usrsctp::program(program), to).expect("the directory is ours");
        }
        let _ = interop.peer.run("modprobe sctp").success();
        let context = interop.daemon.open();
        Self { interop, context }
    }

    /// From here on the kernel has its packets in UDP (RFC 6951).
    fn kernel_goes_in_udp(&self) {
        let keys = ["udp_port", "encap_port"].map(|key| format!("net.sctp.{key}={UDP}"));
        let line = format!("sysctl -w {}", keys.join(" "));
        let _ = self.interop.peer.run(&line).success();
    }

    /// And so has the RNIC.
    fn rnic_goes_in_udp(&mut self) {
        let options = DaemonOptions {
            mode: Some("native"),
            ..in_udp()
        };
        self.interop.kill_daemon();
        let Interop { lab, host, .. } = &self.interop;
        self.interop.daemon = Daemon::start(lab, host, &options);
        self.context = self.interop.daemon.open();
    }

    fn ddp(&self, cases: &mut Cases, first_port: u16, how: &str) {
        for (family, number) in [(Family::V4, 0), (Family::V6, 1)] {
            let port = first_port + 2 * u16::from(number);
            cases.run(format!("DDP{how}, {family:?}, we begin"), || {
                self.we_begin(family, port, 2 - number);
            });
            cases.run(format!("DDP{how}, {family:?}, the kernel begins"), || {
                self.the_peer_begins(family, port + 1, number == 0);
            });
        }
    }

    fn theirs(&self, family: Family) -> String {
        self.interop.peer.address(family, 0).ip().to_string()
    }

    fn listening(&self, line: &str) -> Job {
        let job = self.interop.peer.start(line);
        wait::until("the peer listens", LIMIT, || {
            job.stdout().contains("event=listening").then_some(())
        });
        job
    }

    /// Both send messages; one ends by SHUTDOWN or ABORT.
    fn messages(&self, run: Run) {
        let Interop { host, peer, .. } = &self.interop;
        let (ours, theirs) = (host.address(run.family, 0), peer.address(run.family, 0));
        let (ours, theirs) = (ours.ip(), theirs.ip());
        let words = run.their_words(ours, theirs).join(" ");
        let line = format!("/host/sctp-messages-kernel {words}");
        let command = host.namespace.command(binary::example("raw_messages"));
        let command = command.args(run.our_words(ours, theirs));
        let (mut ours, theirs) = if run.we_connect {
            let theirs = self.listening(&line);
            (command.spawn(), theirs)
        } else {
            let mut ours = command.spawn();
            let says = ours.says("event=listening", LIMIT);
            says.unwrap_or_else(|error| panic!("{error}"));
            (ours, peer.start(&line))
        };
        let said = ours.says("event=result", run.limit());
        said.unwrap_or_else(|error| panic!("{error}; the kernel: {}", theirs.stdout()));
        // Ours still answers: the last packet may be lost.
        let theirs = theirs.finish(LIMIT).success().stdout;
        let output = ours.stdout();
        ours.kill();
        run.assert_done(&output, &theirs);
    }

    /// Either sends the INIT, and either ends. Those that end by SHUTDOWN send as much as `RNIC_TEST_SCTP_MIB` says.
    fn all_messages(&self, cases: &mut Cases, how: &str, udp: Option<u16>) {
        for family in Family::ALL {
            for (we_connect, we_end, end) in [
                (true, true, "shutdown"),
                (false, true, "abort"),
                (true, false, "abort"),
                (false, false, "shutdown"),
            ] {
                let mib = match end {
                    "shutdown" => sctp_messages::mib(),
                    _ => 1,
                };
                let run = Run {
                    family,
                    we_connect,
                    we_end,
                    end,
                    udp,
                    mib,
                };
                let who = |we: bool| if we { "we" } else { "the kernel" };
                let (connects, ends) = (who(we_connect), who(we_end));
                let name =
                    format!("messages{how}, {family:?}, INIT by {connects}, {end} by {ends}");
                cases.run(name, || self.messages(run));
            }
        }
    }

    fn we_begin(&self, family: Family, port: u16, revision: u8) {
        let at = self.interop.peer.address(family, port);
        let bound = at.ip().to_string();
        side::where_we_begin(&self.context, at, revision, |words| {
            self.ddp_listening(&bound, port, words)
        });
    }

    fn ddp_listening(&self, bound: &str, port: u16, words: &[String]) -> Job {
        let words = words.join(" ");
        self.listening(&format!(
            "/host/ddp-sctp-peer-kernel listen --local {bound} --port {port} {words}"
        ))
    }

    fn the_peer_begins(&self, family: Family, port: u16, enhanced: bool) {
        let (at, listener) = self.listener(family, port);
        let bound = self.theirs(family);
        side::where_the_peer_begins(&self.context, &listener, enhanced, |words| {
            self.ddp_connecting(&bound, at, words)
        });
    }

    fn ddp_connecting(&self, bound: &str, at: SocketAddr, words: &[String]) -> Job {
        let (to, port, words) = (at.ip(), at.port(), words.join(" "));
        self.interop.peer.start(&format!(
            "/host/ddp-sctp-peer-kernel connect --local {bound} --remote {to} --port {port} {words}"
        ))
    }

    fn listener(&self, family: Family, port: u16) -> (SocketAddr, Listener) {
        let at = self.interop.host.address(family, port);
        let options = ListenOptions::default().transport(Transport::Sctp);
        let listener = self.context.listen(at, options);
        (at, listener.expect("nobody listens there"))
    }

    /// The peer has two addresses, and loses the first one.
    fn loses_an_address(&self, family: Family, port: u16, we_begin: bool) {
        let peer = &self.interop.peer;
        let homes = Homes {
            ours: &self.interop.host,
            first: peer.address(family, 0).ip(),
            device: "eth0",
            ip: &|words| drop(peer.run(&format!("ip {words}")).success()),
        };
        homes.add_second();
        let (context, bound) = (&self.context, Homes::any(family));
        let happens = || homes.take_first(context);
        if we_begin {
            let at = peer.address(family, port);
            let listens = |words: &[String]| self.ddp_listening(bound, port, words);
            side::where_we_begin_and(context, at, 2, listens, happens);
        } else {
            let (at, listener) = self.listener(family, port);
            let connects = |words: &[String]| self.ddp_connecting(bound, at, words);
            side::where_the_peer_begins_and(context, &listener, true, connects, happens);
        }
        homes.restore();
    }
}

#[test]
fn linuxs_sctp_and_ours_carry_each_others_messages_and_sessions() {
    let mut stand = Stand::new();
    let mut cases = Cases::new("Linux's SCTP");
    stand.all_messages(&mut cases, "", None);
    stand.ddp(&mut cases, PORT + 10, "");
    for (family, port) in [(Family::V4, PORT + 30), (Family::V6, PORT + 32)] {
        for (we_begin, who) in [(true, "we begin"), (false, "the kernel begins")] {
            let name = format!("DDP, {family:?}, {who}, and the kernel loses an address");
            let port = port + u16::from(we_begin);
            cases.run(name, || stand.loses_an_address(family, port, we_begin));
        }
    }
    stand.kernel_goes_in_udp();
    stand.all_messages(&mut cases, " in UDP", Some(UDP));
    stand.rnic_goes_in_udp();
    stand.ddp(&mut cases, PORT + 20, " in UDP");
    cases.finish();
}
