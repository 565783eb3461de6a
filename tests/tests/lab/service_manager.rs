//! What a service manager hears of the daemon (sd_notify(3)): ready, alive in time, reloading, stopping. The
//! tests are the manager.

use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

use rnic_tests::daemon::{Daemon, DaemonOptions};
use rnic_tests::lab::{FORKS, Family, Host, Lab, LinkOptions, Signal};
use rnic_tests::user::run_as;
use rnic_tests::verbs::{Endpoint, connect};
use rnic_tests::wait;
use rustix::time::{ClockId, clock_gettime};

const PORT: u16 = 18516;
const PATIENCE: Duration = Duration::from_secs(30);
/// What the daemon is told as WATCHDOG_USEC.
const WATCHDOG: Duration = Duration::from_secs(1);
const NOBODY: u32 = 65_534;

/// Hears what the daemon says, when it says it.
struct Manager {
    socket: PathBuf,
    heard: Receiver<(Instant, String)>,
    /// When the daemon was last heard to be alive.
    alive: Option<Instant>,
}

impl Manager {
    fn new(directory: &Path) -> Self {
        let socket = directory.join("notify.sock");
        let manager = UnixDatagram::bind(&socket).expect("the directory is the test's");
        let (tell, heard) = channel();
        // Ends with the test's process at the latest. It reads at once, so that times are those of the daemon.
        std::thread::spawn(move || {
            let mut words = [0; 256];
            while let Ok(len) = manager.recv(&mut words) {
                let words = String::from_utf8_lossy(&words[..len]).into_owned();
                if tell.send((Instant::now(), words)).is_err() {
                    return;
                }
            }
        });
        Self {
            socket,
            heard,
            alive: None,
        }
    }

    /// The next words of the daemon. It has never been silent for longer than a manager would wait.
    #[track_caller]
    fn hear(&mut self) -> String {
        let (at, words) = self.heard.recv_timeout(PATIENCE).expect("the daemon tells");
        if let Some(last) = self.alive {
            let silent = at - last;
            assert!(silent <= WATCHDOG, "{silent:?} without WATCHDOG=1");
        }
        if words == "WATCHDOG=1" {
            self.alive = Some(at);
        }
        words
    }

    /// The next words beside that it is alive, and how often it was heard to be alive before these.
    #[track_caller]
    fn hear_else(&mut self) -> (String, u32) {
        let mut times = 0;
        loop {
            match self.hear() {
                words if words == "WATCHDOG=1" => times += 1,
                words => return (words, times),
            }
        }
    }

    /// Hears one reload, and how often the daemon was alive meanwhile.
    #[track_caller]
    fn hear_reload(&mut self, ordered: u64) -> u32 {
        let (words, _) = self.hear_else();
        let micros = words.strip_prefix("RELOADING=1\nMONOTONIC_USEC=");
        let micros: u64 = micros
            .and_then(|number| number.parse().ok())
            .unwrap_or_else(|| panic!("{words:?}"));
        let now = monotonic_micros();
        assert!(
            (ordered..=now).contains(&micros),
            "{ordered} {micros} {now}"
        );
        let (words, times) = self.hear_else();
        assert_eq!(words, "READY=1");
        times
    }
}

fn monotonic_micros() -> u64 {
    let now = clock_gettime(ClockId::Monotonic);
    (now.tv_sec * 1_000_000 + now.tv_nsec / 1000) as u64
}

/// A daemon of two interfaces under a manager that has heard that it is ready, and a daemon at the far end of
/// the first one.
struct Bench {
    daemon: Daemon,
    far: Daemon,
    far_host: Host,
    manager: Manager,
    file: PathBuf,
    _lab: Lab,
}

impl Bench {
    fn new(name: &str) -> Self {
        let mut lab = Lab::new(name);
        let [(near, far_host), _] = lab.forked(&LinkOptions::default());
        let everybodys = Permissions::from_mode(0o755);
        std::fs::set_permissions(lab.directory(), everybodys).expect("it is ours");
        let file = lab.directory().join("rnicd.toml");
        write(&file, &FORKS, "");
        let mut manager = Manager::new(lab.directory());
        let socket = lab.directory().join("near.sock");
        let rnicd = near
            .namespace
            .command("env")
            .label("rnicd")
            .arg(format!("NOTIFY_SOCKET={}", manager.socket.display()))
            .arg(format!("WATCHDOG_USEC={}", WATCHDOG.as_micros()))
            .arg(rnic_tests::binary::path("rnicd"))
            .arg("--config")
            .arg(&file)
            .arg("--socket")
            .arg(&socket);
        let daemon = Daemon::started(rnicd, &near.namespace, &socket, None);
        assert_eq!(manager.hear(), "READY=1");
        let far = Daemon::start(&lab, &far_host, &DaemonOptions::default());
        Self {
            daemon,
            far,
            far_host,
            manager,
            file,
            _lab: lab,
        }
    }

    /// Has the daemon read its file again; gives how often it was alive meanwhile.
    #[track_caller]
    fn reload(&mut self) -> u32 {
        let ordered = monotonic_micros();
        self.daemon.signal(Signal::HUP);
        self.manager.hear_reload(ordered)
    }

    fn logged(&self, words: &str) -> usize {
        self.daemon.log().matches(words).count()
    }

    fn nobody_is_served(&self) -> bool {
        let socket = self.daemon.socket();
        run_as(NOBODY, || {
            rnic::Daemon::at(socket).and_then(|it| it.open(None))
        })
        .is_ok()
    }
}

fn write(file: &Path, interfaces: &[&str], lines: &str) {
    let all = format!(
        "interface = {interfaces:?}\nsocket_mode = \"0666\"\nidle_spin = 20\ndrain = 2500\n{lines}\n"
    );
    std::fs::write(file, all).expect("the directory is ours");
}

#[test]
fn it_is_told_ready_alive_and_stopping() {
    let mut bench = Bench::new("notify");
    for _ in 0..3 {
        assert_eq!(bench.manager.hear(), "WATCHDOG=1");
    }
    bench.daemon.signal(Signal::TERM);
    assert_eq!(bench.manager.hear_else().0, "STOPPING=1");
    let _ = bench.daemon.stop();
}

#[test]
fn each_of_twenty_reloads_is_told_and_the_daemon_stays_alive_in_time() {
    let mut bench = Bench::new("notify-reload");
    assert_eq!(bench.manager.hear(), "WATCHDOG=1");
    for number in 0..20 {
        // One interface is taken away and opened again, and a limit changes.
        let interfaces = &FORKS[number % 2..];
        let limit = format!("[user.{NOBODY}]\nclients = {}", number % 2);
        write(&bench.file, interfaces, &limit);
        let _ = bench.reload();
        assert_eq!(bench.logged("is reloaded"), number + 1);
        let devices = rnic::Daemon::at(bench.daemon.socket())
            .and_then(|it| it.devices())
            .expect("it answers");
        assert_eq!(devices.len(), interfaces.len());
    }
    // As ever after these.
    for _ in 0..2 {
        assert_eq!(bench.manager.hear(), "WATCHDOG=1");
    }
    let _ = bench.daemon.stop();
}

#[test]
fn a_reload_that_takes_longer_than_the_watchdog_waits_does_not_silence_it() {
    let mut bench = Bench::new("notify-slow");
    let near = Endpoint::new(&bench.daemon, 4096);
    let far = Endpoint::new(&bench.far, 4096);
    connect(&near, &far, bench.far_host.address(Family::V4, PORT));
    assert_eq!(bench.manager.hear(), "WATCHDOG=1");
    // The connection can't end in order, so its interface is closed when `drain` is over.
    bench.far.freeze();
    write(&bench.file, &FORKS[1..], "");
    let began = Instant::now();
    let times = bench.reload();
    assert!(began.elapsed() > 2 * WATCHDOG, "{:?}", began.elapsed());
    assert!(times >= 4, "{times} in {:?}", began.elapsed());
    bench.far.signal(Signal::CONT);
    bench.daemon.assert_alive();
}

#[test]
fn a_file_with_a_fault_is_ready_again_as_it_was() {
    let mut bench = Bench::new("notify-fault");
    let limit = format!("[user.{NOBODY}]\nclients = 0");
    write(&bench.file, &FORKS, &limit);
    let _ = bench.reload();
    assert!(!bench.nobody_is_served());

    write(&bench.file, &FORKS[1..], "[limits]\nqueuepairs = 1");
    let _ = bench.reload();
    assert_eq!(bench.logged("is not reloaded"), 1);
    assert_eq!(bench.logged("key `queuepairs` is unknown"), 1);
    std::fs::remove_file(&bench.file).expect("it is ours");
    let _ = bench.reload();
    assert_eq!(bench.logged("is not reloaded"), 2);
    assert!(!bench.nobody_is_served());
    let devices = rnic::Daemon::at(bench.daemon.socket())
        .and_then(|it| it.devices())
        .expect("it answers");
    assert_eq!(devices.len(), FORKS.len());

    write(&bench.file, &FORKS, "");
    let _ = bench.reload();
    wait::until("the limit is gone", PATIENCE, || {
        bench.nobody_is_served().then_some(())
    });
    let _ = bench.daemon.stop();
}
