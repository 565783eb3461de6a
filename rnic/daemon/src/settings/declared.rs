//! The settings of the daemon itself, each declared once. Those of its interfaces are declared in `rnic_device`.

use std::path::PathBuf;
use std::time::Duration;

use log::LevelFilter;
use rnic_device::{Configured, Setting, UdpLink, settings};
use rnic_ipc::find::DEFAULT_SOCKET;

use crate::metrics::MetricsAddress;
use crate::names;

/// What the settings of the daemon itself are set in.
#[derive(Clone, Debug)]
pub(crate) struct DaemonConfig {
    pub(crate) socket: PathBuf,
    pub(crate) socket_mode: u32,
    /// None: the daemon's own.
    pub(crate) socket_group: Option<u32>,
    /// Whose members are administrators, too.
    pub(crate) admin_group: Option<u32>,
    pub(crate) loopback: bool,
    pub(crate) no_loopback: bool,
    /// None: there are interfaces, or the loopback alone.
    pub(crate) udp: Option<UdpLink>,
    pub(crate) no_wait: bool,
    pub(crate) no_seccomp: bool,
    /// None: nowhere.
    pub(crate) metrics: Option<MetricsAddress>,
    /// How long connections may take to end in order when the daemon ends.
    pub(crate) drain: Duration,
    pub(crate) log: LevelFilter,
}

impl Configured for DaemonConfig {
    const SETTINGS: &'static [Setting<Self>] = settings! {
        "socket" "PATH" Text, Restart;
            "Unix socket that clients connect to; with --loopback or --udp rnicd.sock in $XDG_RUNTIME_DIR";
            set |config, value| config.socket = PathBuf::from(value.text());
            show |config| config.socket.display();
        "socket_mode" "MODE" Text, Restart;
            "Permissions of the socket file in octal, which say who may connect; with --loopback or --udp 0600";
            set |config, value| config.socket_mode = octal(value.text())?;
            show |config| format!("{:04o}", config.socket_mode);
        "socket_group" "GROUP" NumberOrText(0, u32::MAX), Restart;
            "Group of the socket file, by name or number";
            set |config, value| config.socket_group = Some(group(value)?);
            show |config| config.socket_group.map_or_else(|| "the daemon's".to_owned(), names::group);
        "admin_group" "GROUP" NumberOrText(0, u32::MAX), AtOnce;
            "Group whose members may administer the RNIC, as root and the daemon's own user may; by name or number. It must be their effective group when they connect";
            set |config, value| config.admin_group = Some(group(value)?);
            show |config| config.admin_group.map_or_else(|| "none".to_owned(), names::group);
        "loopback" "" Flag, Reopen;
            "Open no interface: serve connections between addresses of this host only. Needs no privilege";
            set |config, value| config.loopback = value.flag();
            show |config| config.loopback;
        "no_loopback" "" Flag, Reopen;
            "Do not serve connections between addresses of this host, only those over interfaces";
            set |config, value| config.no_loopback = value.flag();
            show |config| config.no_loopback;
        "udp" "[ADDRESS][:PORT]" Text, Reopen;
            "Open no interface, but a UDP port of this address, or of all: reach hosts that have the same, or SCTP in UDP, and serve connections between addresses of this host. Port 9899 unless another is given. Needs no privilege";
            set |config, value| config.udp = Some(value.text().parse().map_err(|error: rnic_device::ParseUdpLinkError| error.to_string())?);
            show |config| config.udp.map_or_else(|| "none".to_owned(), |link| link.to_string());
        "no_wait" "" Flag, Restart;
            "End with an error when an interface is not there, is down or has no address, and leave one that is taken away closed. Without this the daemon serves the others, and opens each when it is ready";
            set |config, value| config.no_wait = value.flag();
            show |config| config.no_wait;
        "no_seccomp" "" Flag, Reopen;
            "Run without the seccomp filter of the threads that handle packets. For debugging only";
            set |config, value| config.no_seccomp = value.flag();
            show |config| config.no_seccomp;
        "metrics" "ADDRESS" Text, Restart;
            "Serve Prometheus metrics at unix:PATH or at a port of the loopback, such as 127.0.0.1:9400";
            set |config, value| config.metrics = Some(value.text().parse()?);
            show |config| config.metrics.as_ref().map_or_else(|| "nowhere".to_owned(), ToString::to_string);
        "drain" "MS" Number(0, 3_600_000), AtOnce;
            "Milliseconds that connections may take to end in order after SIGTERM; those left are reset";
            set |config, value| config.drain = Duration::from_millis(value.number());
            show |config| config.drain.as_millis();
        "log" "LEVEL" Text, AtOnce;
            "Log level: off, error, warn, info, debug or trace";
            set |config, value| config.log = level(value.text())?;
            show |config| config.log.to_string().to_lowercase();
    };

    fn defaults() -> Self {
        Self {
            socket: PathBuf::from(DEFAULT_SOCKET),
            socket_mode: 0o660,
            socket_group: None,
            admin_group: None,
            loopback: false,
            no_loopback: false,
            udp: None,
            no_wait: false,
            no_seccomp: false,
            metrics: None,
            drain: Duration::from_secs(2),
            log: LevelFilter::Info,
        }
    }
}

impl DaemonConfig {
    /// The option by which it opens no interface, if it was given.
    pub(crate) fn without_interface(&self) -> Option<&'static str> {
        match (self.loopback, self.udp) {
            (true, _) => Some("--loopback"),
            (false, Some(_)) => Some("--udp"),
            (false, None) => None,
        }
    }
}

/// Permissions as they are written.
fn octal(text: &str) -> Result<u32, String> {
    match u32::from_str_radix(text, 8) {
        Ok(mode) if mode <= 0o777 => Ok(mode),
        _ => Err("give permissions in octal, such as 0660".to_owned()),
    }
}

fn group(value: &rnic_device::Value) -> Result<u32, String> {
    match value {
        rnic_device::Value::Number(_) => Ok(value.small()),
        _ => names::gid(value.text()),
    }
}

fn level(text: &str) -> Result<LevelFilter, String> {
    text.parse()
        .map_err(|_| "give off, error, warn, info, debug or trace".to_owned())
}
