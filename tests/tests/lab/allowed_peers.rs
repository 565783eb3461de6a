//! Allow-lists of peers stand in for the host's firewall, which does not see the RNIC's connections.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use rnic::{
    AcceptOptions, ConnectOptions, Context, Error, ListenOptions, Listener, RefusalCode, WcStatus,
    WorkRequest,
};
use rnic_tests::daemon::{Daemon, DaemonOptions, configuration, configure};
use rnic_tests::lab::{Family, Host, INTERFACE, Lab, LinkOptions};
use rnic_tests::user::run_as;
use rnic_tests::verbs::{Endpoint, connect};
use rnic_tests::{binary, tool, wait};

const PORT: u16 = 18515;
const NOBODY: u32 = 65_534;
const LIMIT: Duration = Duration::from_secs(20);
/// How long a peer waits that gets no answer.
const SILENCE: Duration = Duration::from_millis(500);
/// Networks of the lab, in which both hosts are, and others.
const ALL: &str = "'198.18.0.0/15', '2001:db8::/32'";
const OTHERS: &str = "'203.0.113.0/24', '2001:db8:ffff::/48'";

/// Two hosts with a daemon each, of which `b` has a configuration.
struct Bench {
    daemon_a: Daemon,
    daemon_b: Daemon,
    file: PathBuf,
    b: Host,
    _lab: Lab,
}

impl Bench {
    fn new(name: &str, lines: &str) -> Self {
        let mut lab = Lab::new(name);
        let (a, b) = lab.pair(&LinkOptions::default());
        let (file, options) = configuration(&lab, &for_all(lines));
        Self {
            daemon_a: Daemon::start(&lab, &a, &DaemonOptions::default()),
            daemon_b: Daemon::start(&lab, &b, &options),
            file,
            b,
            _lab: lab,
        }
    }

    fn reload(&self, lines: &str) {
        configure(&self.file, &for_all(lines));
        let rnicctl = self.b.namespace.command(binary::path("rnicctl"));
        let rnicctl = rnicctl.arg("--socket").arg(self.daemon_b.socket());
        let _ = rnicctl.arg("reload").run().success();
    }

    fn server(&self) -> Context {
        self.daemon_b.open()
    }

    fn at(&self, family: Family) -> SocketAddr {
        self.b.address(family, PORT)
    }

    /// Connects from the other host; the listener's program accepts.
    fn connects(&self, listener: &Listener, server: &Context) -> Result<(), Error> {
        let (client, served) = (
            Endpoint::new(&self.daemon_a, 4096),
            Endpoint::of(server.clone(), 4096),
        );
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let request = listener.accept().wait(2 * SILENCE);
                request.and_then(|request| {
                    request
                        .accept(&served.qp, AcceptOptions::default())
                        .wait(LIMIT)
                })
            });
            let options = ConnectOptions::default();
            client
                .qp
                .connect(listener.local_addr(), options)
                .wait(SILENCE)
                .map(drop)
        })
    }

    #[track_caller]
    fn assert_silent(&self, listener: &Listener, server: &Context) {
        let refused = self.connects(listener, server);
        assert!(matches!(refused, Err(Error::Timeout { .. })), "{refused:?}");
    }

    /// Waits until `b` has logged this.
    fn logged(&self, words: &str) {
        wait::until(words, LIMIT, || {
            self.daemon_b.log().contains(words).then_some(())
        });
    }

    fn counter(&self, list: &str) -> u64 {
        self.daemon_b.counter(&format!("peers_refused_{list}"))
    }
}

fn for_all(lines: &str) -> String {
    format!("socket_mode = \"0666\"\n{lines}")
}

#[test]
fn peers_of_an_interfaces_list_connect_and_others_get_no_answer_until_a_reload() {
    let bench = Bench::new("peers-interface", &format!("allowed_peers = [{ALL}]"));
    let server = bench.server();
    for family in Family::ALL {
        bench.reload(&format!("allowed_peers = [{ALL}]"));
        let at = bench.at(family);
        let listener = server
            .listen(at, ListenOptions::default().backlog(4))
            .expect("a free address");
        bench.connects(&listener, &server).unwrap();
        let counted = bench.counter("interface");

        bench.reload(&format!("allowed_peers = [{OTHERS}]"));
        bench.assert_silent(&listener, &server);
        assert!(bench.counter("interface") > counted);
        bench.logged(&format!("is refused at {at}, listener "));
        let whose = format!("not in allowed_peers of interface {INTERFACE}");
        bench.logged(&whose);
        // A listener that comes later has the list of now.
        let mut later = at;
        later.set_port(PORT + 1);
        let later = server
            .listen(later, ListenOptions::default().backlog(4))
            .expect("a free address");
        bench.assert_silent(&later, &server);

        bench.reload("");
        bench.connects(&listener, &server).unwrap();
    }
    let log = bench.daemon_b.log();
    assert!(log.contains("[WARN audit] peer 198.18."), "{log}");
    assert!(log.contains("[WARN audit] peer [2001:db8:"), "{log}");
}

#[test]
fn what_goes_on_is_not_ended_by_a_list() {
    let bench = Bench::new("peers-going-on", "");
    let (client, served) = (
        Endpoint::new(&bench.daemon_a, 4096),
        Endpoint::new(&bench.daemon_b, 4096),
    );
    connect(&client, &served, bench.at(Family::V4));
    bench.reload("allowed_peers = []");
    let all = [client.element(0..4096)];
    client.post(WorkRequest::write(1, &all, served.remote()));
    assert_eq!(client.completion().status, WcStatus::Success);
    assert_eq!(bench.counter("interface"), 0);
}

#[test]
fn lists_of_users_and_listeners_are_for_theirs_alone() {
    let lists = format!(
        "[user.{NOBODY}]\nallowed_peers = [{OTHERS}]\n[[listener]]\naddress = ':{}'\nallowed_peers = [{OTHERS}]",
        PORT + 1
    );
    let bench = Bench::new("peers-users", &lists);
    let root = bench.server();
    let nobody = run_as(NOBODY, || {
        rnic::Daemon::at(bench.daemon_b.socket()).and_then(|it| it.open(None))
    })
    .expect("it serves");
    let at = |port| bench.b.address(Family::V4, port);
    let roots = root
        .listen(at(PORT), ListenOptions::default().backlog(4))
        .expect("a free address");
    bench.connects(&roots, &root).unwrap();

    let nobodys = nobody
        .listen(at(PORT + 2), ListenOptions::default().backlog(4))
        .expect("a free address");
    bench.assert_silent(&nobodys, &nobody);
    assert!(bench.counter("user") > 0);
    bench.logged(&format!("not in allowed_peers of user {NOBODY}"));

    let listed = root
        .listen(at(PORT + 1), ListenOptions::default().backlog(4))
        .expect("a free address");
    assert_eq!(bench.counter("listener"), 0);
    bench.assert_silent(&listed, &root);
    assert!(bench.counter("listener") > 0);
    bench.logged("not in allowed_peers of [[listener]]");

    bench.reload(&format!("[user.{NOBODY}]\nallowed_peers = [{ALL}]"));
    bench.connects(&nobodys, &nobody).unwrap();
    bench.connects(&listed, &root).unwrap();
    assert_eq!(bench.counter("interface"), 0);
}

#[test]
fn clients_connect_to_no_peer_outside_their_lists() {
    let lists = format!("allowed_peers = ['2001:db8::/32']\n[user.{NOBODY}]\nallowed_peers = []");
    let bench = Bench::new("peers-active", &lists);
    let refused = |context: Context, to: SocketAddr, whose: &str| {
        let client = Endpoint::of(context, 4096);
        let error = client
            .qp
            .connect(to, ConnectOptions::default())
            .wait(SILENCE);
        match error.unwrap_err() {
            Error::Refused(refusal) => {
                assert_eq!(refusal.code, RefusalCode::NotPermitted, "{refusal}");
                assert!(refusal.message.contains(whose), "{refusal}");
            }
            other => panic!("{other}"),
        }
    };
    // From `b`, which has the lists, to what `a` does not even listen at.
    let peer = bench.daemon_a.open();
    let addresses = peer.device_info().expect("it tells").addresses;
    let of = |is: fn(&std::net::IpAddr) -> bool| {
        let found = addresses.iter().copied().find(is).expect("an address");
        SocketAddr::new(found, PORT)
    };
    let v4 = of(|address| address.is_ipv4());
    let v6 = of(|address| address.is_ipv6() && !address.to_string().starts_with("fe80"));
    let whose = format!("interface {INTERFACE}'s allowed_peers");
    refused(bench.server(), v4, &whose);
    let nobody = run_as(NOBODY, || {
        rnic::Daemon::at(bench.daemon_b.socket()).and_then(|it| it.open(None))
    })
    .expect("it serves");
    let whose = format!("user {NOBODY}'s allowed_peers");
    refused(nobody, v6, &whose);
    bench.logged("[WARN audit] client ");
    bench.logged(&format!("uid {NOBODY}"));
    for list in ["interface", "user"] {
        let counted = bench
            .daemon_b
            .counter(&format!("refused_{list}_allowed_peers"));
        assert_eq!(counted, 1, "{list}");
    }

    let server = tool::server(&bench.daemon_a, "rnic-ping", v6, &[]);
    let ping = tool::client(&bench.daemon_b, "rnic-ping", v6, &["--count", "1"]);
    let _ = ping.run().success();
    let _ = server.finish(LIMIT).success();
}

#[test]
fn the_hosts_own_programs_need_no_leave() {
    let lists = format!("allowed_peers = []\n[limits.user]\nallowed_peers = [{OTHERS}]");
    let bench = Bench::new("peers-within", &lists);
    let loopback = SocketAddr::from(([127, 0, 0, 1], PORT));
    for at in [loopback, bench.at(Family::V4), bench.at(Family::V6)] {
        let (client, served) = (
            Endpoint::new(&bench.daemon_b, 4096),
            Endpoint::new(&bench.daemon_b, 4096),
        );
        connect(&client, &served, at);
    }
}

#[test]
fn ports_that_the_host_keeps_for_root_are_no_other_users() {
    let bench = Bench::new("peers-ports", "");
    let nobody = run_as(NOBODY, || {
        rnic::Daemon::at(bench.daemon_b.socket()).and_then(|it| it.open(None))
    })
    .expect("it serves");
    let at = bench.at(Family::V4);
    let start = "net.ipv4.ip_unprivileged_port_start";
    drop(
        nobody
            .listen(at, ListenOptions::default().backlog(4))
            .expect("a free address"),
    );
    bench.b.namespace.sysctl(start, "20000");
    match nobody.listen(at, ListenOptions::default().backlog(4)) {
        Err(Error::Refused(refusal)) => {
            assert_eq!(refusal.code, RefusalCode::NotPermitted, "{refusal}");
            assert!(refusal.message.contains(start), "{refusal}");
        }
        other => panic!("{other:?}"),
    }
    let _ = bench
        .server()
        .listen(at, ListenOptions::default().backlog(4))
        .expect("root may");
    bench.b.namespace.sysctl(start, "80");
    let mut low = at;
    low.set_port(80);
    let _ = nobody
        .listen(low, ListenOptions::default().backlog(4))
        .expect("the host keeps it for nobody");
}
