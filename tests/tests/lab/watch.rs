//! What `rnicctl` shows again and again, of a real daemon with traffic: lists that fit 80 columns, answers by
//! `--watch`, `rnicctl top`, and a terminal that is redrawn and given back.

use std::fs::File;
use std::io::{Read, Write};
use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::process::{Child, Command as Program, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use rnic::{ListenOptions, WorkRequest};
use rnic_tests::binary;
use rnic_tests::daemon::Daemon;
use rnic_tests::lab::{Command, Family, INTERFACE, Lab, LinkOptions};
use rnic_tests::pair::Pair;
use rnic_tests::verbs::{Endpoint, connect};
use rnic_tests::wait;
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::termios::{LocalModes, Winsize, tcgetattr, tcsetwinsize};
use serde_json::Value;

const PORT: u16 = 18540;
const BYTES: usize = 64 * 1024;
const PATIENCE: Duration = Duration::from_secs(30);
const LISTS: [&str; 7] = [
    "clients",
    "connections",
    "qps",
    "cqs",
    "regions",
    "listeners",
    "limits",
];
const LONG: [Ipv6Addr; 2] = [
    Ipv6Addr::new(
        0x2001, 0xdb8, 0x1111, 0x2222, 0x3333, 0x4444, 0x5555, 0x6666,
    ),
    Ipv6Addr::new(
        0x2001, 0xdb8, 0x1111, 0x2222, 0x3333, 0x4444, 0x5555, 0x7777,
    ),
];

fn ask(daemon: &Daemon, question: &[&str]) -> Command {
    let command = daemon.namespace().command(binary::path("rnicctl"));
    let command = command.label("rnicctl").args(["--socket"]);
    command.arg(daemon.socket()).args(question)
}

fn told(daemon: &Daemon, question: &[&str]) -> String {
    ask(daemon, question).run().success().stdout
}

/// Two hosts with addresses of all lengths.
fn pair(name: &str) -> Pair {
    let mut lab = Lab::new(name);
    let (a, b) = lab.pair(&LinkOptions::default());
    for (host, address) in [&a, &b].into_iter().zip(LONG) {
        let address = format!("{address}/64");
        host.namespace
            .ip(&["addr", "add", &address, "dev", INTERFACE, "nodad"]);
    }
    let daemon_a = Daemon::start(&lab, &a, &Default::default());
    let daemon_b = Daemon::start(&lab, &b, &Default::default());
    Pair {
        daemon_a,
        daemon_b,
        a,
        b,
        lab,
    }
}

fn connected(pair: &Pair, at: SocketAddr) -> (Endpoint, Endpoint) {
    let a = Endpoint::new(&pair.daemon_a, BYTES);
    let b = Endpoint::new(&pair.daemon_b, BYTES);
    connect(&a, &b, at);
    (a, b)
}

/// While a closure runs, `a` Writes to `b`.
fn writing<T>((a, b): &(Endpoint, Endpoint), work: impl FnOnce() -> T) -> T {
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let writer = scope.spawn(|| {
            while !over.load(Ordering::Relaxed) {
                a.post(WorkRequest::write(
                    1,
                    &[a.element(0..BYTES)],
                    b.remote().offset(0),
                ));
                let _ = a.completion();
            }
        });
        let done = std::panic::catch_unwind(std::panic::AssertUnwindSafe(work));
        over.store(true, Ordering::Relaxed);
        writer.join().expect("the writer writes");
        done.unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    })
}

#[track_caller]
fn fits(text: &str, columns: usize) {
    for line in text.lines() {
        assert!(line.chars().count() <= columns, "{line:?} of\n{text}");
    }
}

#[test]
fn every_list_fits_80_columns_and_a_wide_one_has_a_line_for_each_object() {
    let pair = pair("columns");
    let long = SocketAddr::new(IpAddr::V6(LONG[1]), 65_530);
    let _long = connected(&pair, long);
    let _short = connected(&pair, pair.b.address(Family::V4, PORT));
    let listens = SocketAddr::new(IpAddr::V6(LONG[0]), 65_531);
    let context = pair.daemon_a.open();
    let _listener = context
        .listen(listens, ListenOptions::default().backlog(1))
        .expect("a free address");

    for list in LISTS {
        let narrow = told(&pair.daemon_a, &[list]);
        fits(&narrow, 80);
        let objects: Vec<Value> =
            serde_json::from_str(&told(&pair.daemon_a, &[list, "--json"])).expect("JSON");
        assert!(!objects.is_empty(), "{list}");
        let wide = told(&pair.daemon_a, &[list, "--wide"]);
        assert_eq!(wide.lines().count(), 1 + objects.len(), "{wide}");
        // Nothing is left out.
        let words = |text: &str| {
            let mut words: Vec<_> = text.split_whitespace().map(str::to_owned).collect();
            words.sort();
            words.len()
        };
        assert_eq!(words(&narrow), words(&wide), "{narrow}\n{wide}");
    }
    let connections = told(&pair.daemon_a, &["connections"]);
    assert!(connections.contains(&long.to_string()), "{connections}");
    let qps = told(&pair.daemon_a, &["qps"]);
    assert!(qps.contains(&long.to_string()), "{qps}");
    let listeners = told(&pair.daemon_a, &["listeners"]);
    assert!(listeners.contains(&listens.to_string()), "{listeners}");
    for question in [
        &["device"][..],
        &["devices"],
        &["counters"],
        &["counters", "--watch", "0.1", "--times", "1"],
        &["top", "--times", "1", "--watch", "0.1"],
    ] {
        fits(&told(&pair.daemon_a, question), 80);
    }
}

#[test]
fn a_watched_list_is_a_block_each_time_and_in_json_a_line() {
    let pair = pair("watched");
    let ends = connected(&pair, pair.b.address(Family::V4, PORT));
    let watch = ["--watch", "0.1", "--times", "3"];
    for list in LISTS {
        let json = told(&pair.daemon_a, &[&[list, "--json"][..], &watch].concat());
        let looks: Vec<Value> = json
            .lines()
            .map(|line| serde_json::from_str(line).expect("a line is JSON"))
            .collect();
        assert_eq!(looks.len(), 3, "{json}");
        assert!(looks.iter().all(Value::is_array), "{json}");
    }
    let devices = told(&pair.daemon_a, &[&["devices"][..], &watch].concat());
    assert_eq!(devices.matches("\n\n").count(), 3, "{devices}");

    // Each look is a new one.
    let mut watching = ask(
        &pair.daemon_a,
        &["connections", "--json", "--watch", "0.05"],
    )
    .spawn();
    let looks = |watching: &rnic_tests::lab::Process| watching.stdout().lines().count();
    let last = |text: String| text.lines().last().unwrap_or_default().to_owned();
    wait::until("the connection is seen", PATIENCE, || {
        (looks(&watching) > 1).then_some(())
    });
    drop(ends);
    wait::until("its end is seen", PATIENCE, || {
        (!last(watching.stdout()).contains("ESTABLISHED")).then_some(())
    });
    assert!(watching.running());
    watching.kill();
}

#[test]
fn top_tells_who_moves_how_much() {
    let pair = pair("top");
    let ends = connected(&pair, SocketAddr::new(IpAddr::V6(LONG[1]), 65_530));
    let idle = connected(&pair, pair.b.address(Family::V4, PORT));
    writing(&ends, || {
        let json = told(
            &pair.daemon_a,
            &["top", "--json", "--times", "2", "--watch", "0.3"],
        );
        let last: Value =
            serde_json::from_str(json.lines().last().expect("two lines")).expect("JSON");
        assert_eq!(json.lines().count(), 2, "{json}");
        let [busy, quiet] = &last["connections"].as_array().expect("a list")[..] else {
            panic!("two connections: {last}");
        };
        let rate = |of: &Value, name: &str| of[name].as_f64().expect("a number");
        assert_eq!(busy["client"], ends.0.context.client_id());
        assert!(rate(busy, "bytes_out_per_second") > 100_000.0, "{busy}");
        assert!(busy["rtt_us"].as_u64().is_some(), "{busy}");
        assert_eq!(quiet["client"], idle.0.context.client_id());
        assert_eq!(rate(quiet, "bytes_out_per_second"), 0.0);
        let first = &last["clients"][0];
        assert_eq!(first["client"], busy["client"]);
        assert_eq!(
            rate(first, "bytes_out_per_second"),
            rate(busy, "bytes_out_per_second")
        );
        let text = told(&pair.daemon_a, &["top", "--times", "2", "--watch", "0.2"]);
        fits(&text, 80);
        assert_eq!(
            text.matches("clients, 2 connections: in").count(),
            2,
            "{text}"
        );
        // The other end receives what this one sends.
        let json = told(
            &pair.daemon_b,
            &["top", "--json", "--times", "1", "--watch", "0.3"],
        );
        let found: Value = serde_json::from_str(&json).expect("JSON");
        let busy = &found["connections"][0];
        assert!(rate(busy, "bytes_in_per_second") > 100_000.0, "{busy}");
    });
}

/// A program whose terminal this test is.
struct Terminal {
    child: Child,
    keys: File,
    shown: Arc<Mutex<Vec<u8>>>,
}

impl Terminal {
    fn start(daemon: &Daemon, question: &[&str]) -> Self {
        let terminal = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).expect("a terminal");
        grantpt(&terminal).expect("it is ours");
        unlockpt(&terminal).expect("it is ours");
        let size = Winsize {
            ws_row: 24,
            ws_col: 80,
            ws_xpixel: 0,
            ws_ypixel: 0,
        };
        tcsetwinsize(&terminal, size).expect("a size");
        let name = ptsname(&terminal, Vec::new()).expect("it has a name");
        let name = name.to_str().expect("a path of ASCII letters");
        let end = || {
            let opened = File::options().read(true).write(true).open(name);
            Stdio::from(opened.expect("the terminal's other end"))
        };
        // As a shell does it: the terminal is the program's own, and its Ctrl-C a signal.
        let child = Program::new("setsid")
            .args(["--ctty", "--wait"])
            .arg(binary::path("rnicctl"))
            .arg("--socket")
            .arg(daemon.socket())
            .args(question)
            .stdin(end())
            .stdout(end())
            .stderr(Stdio::inherit())
            .spawn()
            .expect("setsid runs (scripts/setup)");
        let shown = Arc::new(Mutex::new(Vec::new()));
        let keys = File::from(terminal);
        let mut screen = keys.try_clone().expect("a descriptor");
        let into = Arc::clone(&shown);
        std::thread::spawn(move || {
            let mut bytes = [0; 4096];
            while let Ok(count @ 1..) = screen.read(&mut bytes) {
                into.lock().expect("no panic").extend(&bytes[..count]);
            }
        });
        Self { child, keys, shown }
    }

    fn shown(&self) -> String {
        String::from_utf8_lossy(&self.shown.lock().expect("no panic")).into_owned()
    }

    /// What was drawn last, as a whole.
    fn screen(&self) -> String {
        let shown = self.shown();
        let mut screens = shown.rsplit("\x1b[H");
        let unfinished = screens.next().unwrap_or_default();
        let last = match unfinished.contains("\x1b[J") {
            true => unfinished,
            false => screens.next().unwrap_or_default(),
        };
        last.replace("\x1b[K", "").replace('\r', "")
    }

    fn wait_for_screens(&self, number: usize) {
        wait::until("the terminal is redrawn", PATIENCE, || {
            (self.shown().matches("\x1b[J").count() >= number).then_some(())
        });
    }

    fn modes(&self) -> LocalModes {
        tcgetattr(&self.keys).expect("it is a terminal").local_modes
    }

    /// Presses a key, and waits for the program's end.
    #[track_caller]
    fn ends_by(mut self, key: &[u8], shown_keys: LocalModes) {
        assert!(!self.modes().contains(LocalModes::ECHO));
        self.keys.write_all(key).expect("a key");
        let status = wait::until("the program ends", PATIENCE, || {
            self.child.try_wait().expect("it is our child")
        });
        assert_eq!(status.code(), Some(0));
        assert_eq!(self.modes(), shown_keys, "the terminal is as it was");
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        // It has ended, unless the test failed.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn a_terminal_is_redrawn_until_q_or_ctrl_c_and_is_as_it_was() {
    let pair = pair("terminal");
    let ends = connected(&pair, SocketAddr::new(IpAddr::V6(LONG[1]), 65_530));
    let fresh = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).expect("a terminal");
    let usual = tcgetattr(&fresh).expect("it is a terminal").local_modes;
    writing(&ends, || {
        for (key, question) in [
            (&b"q"[..], &["top", "--watch", "0.1"][..]),
            (b"\x03", &["top", "--watch", "0.1"]),
            (b"q", &["connections", "--watch", "0.1"]),
            // Longer than the terminal.
            (b"q", &["counters", "--watch", "0.1"]),
        ] {
            let terminal = Terminal::start(&pair.daemon_a, question);
            terminal.wait_for_screens(3);
            let screen = terminal.screen();
            fits(&screen, 80);
            assert!(screen.lines().count() <= 24, "{screen}");
            let is_cut = screen.contains("more lines)");
            assert_eq!(is_cut, question[0] == "counters", "{screen}");
            terminal.ends_by(key, usual);
        }
    });
}
