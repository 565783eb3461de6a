//! The settings of an interface, each declared once.

use std::path::PathBuf;
use std::time::Duration;

use rnic_engine::shard::SctpUdp;
use rnic_ipc::control::{RECEIVE_WAIT_MAX, ReceiveWait};
use rnic_steering::Rate;
use userspace_tcp::KeepAlive;

use super::setting::{Configured, Needs, Setting, Value, of_word, word_of};
use crate::{DeviceConfig, Polling, ShardCount, XdpMode};

const MODES: [(&str, XdpMode); 4] = [
    ("auto", XdpMode::Auto),
    ("native", XdpMode::Native),
    ("generic", XdpMode::Generic),
    ("super-packets", XdpMode::SuperPackets),
];

/// `adaptive` with the time that is the default; `idle_spin` may give another.
const POLLING: [(&str, Polling); 3] = [
    ("spin", Polling::Spin),
    ("adaptive", Polling::DEFAULT),
    ("event", Polling::Event),
];

const IDLE: Needs = Needs {
    setting: "keepalive_idle",
    why: "which says after how many seconds of silence a peer is first probed: give that too (0 for never)",
};
const UDP_PORT: Needs = Needs {
    setting: "sctp_udp_port",
    why: "from which SCTP in UDP is sent: give that too (9899 is registered for it)",
};

impl Configured for DeviceConfig {
    const SETTINGS: &'static [Setting<Self>] = crate::settings! {
        "capture" "FILE.pcapng" Text, Reopen;
            "Write every frame of the RNIC to this file. With several interfaces each has a file of its own, with the interface's name before the extension";
            set |config, value| config.capture = Some(PathBuf::from(value.text()));
            show |config| or(config.capture.as_ref().map(|path| path.display()), "none");
        "shards" "N" NumberOrText(1, ShardCount::MAX), Reopen, interface_only = true;
            "Threads that serve the interface, each with RX queues of its own: a number, or `auto` for one for each queue, but no more than processors";
            set |config, value| config.shards = match value.number() {
                0 => parsed(value.text())?,
                number => ShardCount::Number(number as u32),
            };
            show |config| config.shards;
        "cores" "LIST" Text, Reopen;
            "Processors that these threads stay on, one for each, such as `2,4-6`; `auto` for those of the queues' interrupts, or else of the interface's NUMA node";
            set |config, value| config.cores = parsed(value.text())?;
            show |config| config.cores;
        "queues" "N" Number(1, u32::MAX), Reopen, interface_only = true;
            "RX queues that the interface must have";
            set |config, value| config.queues = Some(value.small());
            show |config| or(config.queues, "any number");
        "dedicated_queues" "LIST" Text, Reopen, interface_only = true;
            "RX queues that are the RNIC's alone, such as `6-7`; flow rules (`ethtool -N`) must bring its frames there";
            set |config, value| config.dedicated_queues = Some(parsed(value.text())?);
            show |config| or(config.dedicated_queues.as_ref(), "none: all are served");
        "mode" "MODE" Text, Reopen, interface_only = true;
            "XDP mode: `auto` for super-packets on a veth or tap with one queue and tso on (Linux 6.9), else native where the driver has it, else generic; `native`, in the driver; `generic`, in the kernel, for any driver; `super-packets`, generic with packets of up to 64 KiB";
            set |config, value| config.mode = of_word(&MODES, value.text())?;
            show |config| word_of(&MODES, &config.mode);
        "frames" "N" Number(1, u32::MAX), Reopen;
            "Packet buffers of the interface";
            set |config, value| config.frames = value.small();
            show |config| config.frames;
        "polling" "MODE" Text, AtOnce;
            "What the shard does while it has no work: `spin` polls always and takes a core, `adaptive` polls for a while and then sleeps, `event` sleeps at once";
            set |config, value| config.polling = of_word(&POLLING, value.text())?;
            show |config| match config.polling {
                Polling::Adaptive(_) => "adaptive".to_owned(),
                other => word_of(&POLLING, &other),
            };
        "idle_spin" "US" Number(0, 1_000_000), AtOnce;
            "Microseconds to poll without work before sleeping, with adaptive polling";
            set |config, value| if let Polling::Adaptive(spin) = &mut config.polling {
                *spin = Duration::from_micros(value.number());
            };
            show |config| match config.polling {
                Polling::Adaptive(spin) => spin.as_micros().to_string(),
                Polling::Spin | Polling::Event => "unused".to_owned(),
            };
        "busy_poll" "US" Number(0, 1_000_000), Reopen, interface_only = true;
            "Microseconds to busy-poll the driver at each poll (drivers with NAPI busy polling)";
            set |config, value| config.busy_poll = Some(value.small());
            show |config| or(config.busy_poll, "none");
        "syn_rate" "N" Number(0, u32::MAX), Reopen;
            "SYNs a second that reach the shard; more are dropped; 0 for no limit";
            set |config, value| config.flood_limits.syns = Rate::of(value.small());
            show |config| rate(config.flood_limits.syns);
        "unknown_flow_rate" "N" Number(0, u32::MAX), Reopen;
            "Segments a second of unknown connections that reach the shard; more are dropped; 0 for no limit";
            set |config, value| config.flood_limits.unknown_flows = Rate::of(value.small());
            show |config| rate(config.flood_limits.unknown_flows);
        "fragment_rate" "N" Number(0, u32::MAX), Reopen;
            "Fragments a second of unknown connections that reach the shard; more are dropped; 0 for no limit";
            set |config, value| config.flood_limits.fragments = Rate::of(value.small());
            show |config| rate(config.flood_limits.fragments);
        "user_timeout" "MS" Number(1000, 86_400_000), AtOnce;
            "Milliseconds after which a peer that acknowledges nothing, or owes an answer and is silent, is reset: the user timeout of RFC 9293 section 3.8.3";
            set |config, value| config.user_timeout = Duration::from_millis(value.number());
            show |config| config.user_timeout.as_millis();
        "first_byte_timeout" "MS" Number(100, 10_000), AtOnce;
            "Milliseconds that a peer may be silent after it has connected to a listener";
            set |config, value| config.first_byte_timeout = Duration::from_millis(value.number());
            show |config| config.first_byte_timeout.as_millis();
        "answer_timeout" "MS" Number(1000, 3_600_000), AtOnce;
            "Milliseconds that a program may take to accept or reject a peer's request";
            set |config, value| config.answer_timeout = Duration::from_millis(value.number());
            show |config| config.answer_timeout.as_millis();
        "receive_wait" "WAIT" NumberOrText(1, RECEIVE_WAIT_MAX), NewConnections;
            "How long a peer's Send for which no receive is posted waits for one: milliseconds, `forever`, or `off`, when it ends the connection. Not over SCTP";
            set |config, value| config.receive_wait = match value {
                Value::Number(millis) => ReceiveWait::Millis(*millis as u32),
                _ => parsed(value.text())?,
            };
            show |config| config.receive_wait;
        "keepalive_idle" "S" Number(0, 32_767), NewConnections;
            "Seconds of silence after which an idle peer is probed: keep-alive, RFC 9293 section 3.8.4; 0 for never";
            set |config, value| config.keepalive = (value.number() > 0).then(|| KeepAlive {
                idle: Duration::from_secs(value.number()),
                ..KeepAlive::default()
            });
            show |config| config.keepalive.map_or(0, |keepalive| keepalive.idle.as_secs());
        "keepalive_interval" "S" Number(1, 32_767), NewConnections, needs = IDLE;
            "Seconds between keep-alive probes";
            set |config, value| if let Some(keepalive) = &mut config.keepalive {
                keepalive.interval = Duration::from_secs(value.number());
            };
            show |config| config.keepalive.unwrap_or_default().interval.as_secs();
        "keepalive_probes" "N" Number(1, 127), NewConnections, needs = IDLE;
            "Keep-alive probes that a peer may leave unanswered; it is reset one interval after the last";
            set |config, value| if let Some(keepalive) = &mut config.keepalive {
                keepalive.probes = value.small();
            };
            show |config| config.keepalive.unwrap_or_default().probes;
        "congestion" "NAME" Text, Reopen;
            "Congestion control of all connections: cubic, for every network; newreno; dctcp, where all switches mark early; bbr, which is experimental, for paths that lose packets by chance";
            set |config, value| config.congestion = parsed(value.text())?;
            show |config| config.congestion;
        "sctp_udp_port" "PORT" Number(1, u16::MAX), Reopen;
            "UDP port where SCTP in UDP is taken, and from which it is sent (RFC 6951); 9899 is registered for it";
            set |config, value| config.sctp_udp = Some(SctpUdp {
                port: value.number() as u16,
                peer_port: None,
            });
            show |config| or(config.sctp_udp.map(|udp| udp.port), "none");
        "sctp_udp_peer_port" "PORT" Number(1, u16::MAX), Reopen, needs = UDP_PORT;
            "UDP port of the peers to which SCTP associations are begun in UDP; without it they go without UDP";
            set |config, value| if let Some(udp) = &mut config.sctp_udp {
                udp.peer_port = Some(value.number() as u16);
            };
            show |config| or(config.sctp_udp.and_then(|udp| udp.peer_port), "none");
        "host_ipsec" "WHAT" Text, Reopen, interface_only = true;
            "What the host's IPsec policies are for the RNIC, which has no ESP: `refuse` refuses connections that they don't allow in clear, `ignore` makes them in clear";
            set |config, value| config.host_ipsec = parsed(value.text())?;
            show |config| config.host_ipsec;
    };

    fn defaults() -> Self {
        Self::new("")
    }
}

fn parsed<T>(text: &str) -> Result<T, String>
where
    T: std::str::FromStr<Err: std::fmt::Display>,
{
    text.parse().map_err(|error: T::Err| error.to_string())
}

fn or(value: Option<impl std::fmt::Display>, without: &str) -> String {
    value.map_or_else(|| without.to_owned(), |value| value.to_string())
}

/// With the burst, which a program that uses the library may choose. The sharers follow from the queues.
fn rate(rate: Rate) -> String {
    let Rate {
        per_second, burst, ..
    } = rate;
    match burst == Rate::of(per_second).burst {
        true => per_second.to_string(),
        false => format!("{per_second}, {burst} at once"),
    }
}
