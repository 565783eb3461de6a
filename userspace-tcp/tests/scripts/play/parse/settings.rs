//! `config name=value`.

use std::time::Duration;

use userspace_tcp::{Config, CongestionControl, KeepAlive};

use crate::lexer::{Cursor, Malformed, Parsed};
use crate::syntax::Settings;

/// Near the wrap, so that scripts cross it without asking for it.
const IRS: u32 = u32::MAX - 1000;

impl Default for Settings {
    /// Without options and choices, so that numbers are round: what a script is about it says.
    fn default() -> Self {
        Self {
            stack: Config {
                timestamps: false,
                sack: false,
                window_scale: false,
                receive_window: 65_535,
                ack_delay: Duration::from_millis(40),
                congestion: CongestionControl::NewReno,
                ecn: false,
                pacing: false,
                path_mtu_probing: false,
                syn_cookies: false,
                ..Config::default()
            },
            iss: None,
            irs: IRS,
            ipv6: false,
            consumes: true,
            peer_window: u16::MAX,
            exact_push: false,
            tolerance: Duration::ZERO,
        }
    }
}

impl Settings {
    /// Takes `name=value`.
    pub fn set(&mut self, name: &str, value: &str) -> Parsed<()> {
        let wrong = |expected: &str| Malformed {
            expected: format!("{name}={expected}"),
            found: format!("\"{value}\""),
        };
        let one_of = |names: [&str; 2]| match value {
            _ if value == names[0] => Ok(true),
            _ if value == names[1] => Ok(false),
            _ => Err(wrong(&names.join(" or "))),
        };
        let switch = || one_of(["on", "off"]);
        let time = || {
            let mut cursor = Cursor::new(value);
            let time = cursor.duration("a time");
            time.and_then(|time| cursor.end().map(|()| time))
                .map_err(|_| wrong("a time such as 200ms"))
        };
        let stack = &mut self.stack;
        match name {
            "mss" => stack.mss = number(name, value)?,
            "receive_window" => stack.receive_window = number(name, value)?,
            "send_queue" => stack.send_queue_segments = number(name, value)?,
            "connections" => stack.connections = number(name, value)?,
            "resets_per_second" => stack.resets_per_second = number(name, value)?,
            "syn_retries" => stack.syn_retries = number(name, value)?,
            "timestamps" => stack.timestamps = switch()?,
            "sack" => stack.sack = switch()?,
            "wscale" => stack.window_scale = switch()?,
            "ecn" => stack.ecn = switch()?,
            "keepalive" => stack.keepalive = switch()?.then(KeepAlive::default),
            "pacing" => stack.pacing = switch()?,
            "path_mtu_probing" => stack.path_mtu_probing = switch()?,
            "syn_cookies" => stack.syn_cookies = switch()?,
            "congestion" => {
                stack.congestion = match value {
                    "cubic" => CongestionControl::Cubic,
                    "newreno" => CongestionControl::NewReno,
                    "dctcp" => CongestionControl::Dctcp,
                    "bbr" => CongestionControl::Bbr,
                    _ => return Err(wrong("cubic, newreno, dctcp or bbr")),
                }
            }
            "initial_rto" => stack.initial_rto = time()?,
            "min_rto" => stack.min_rto = time()?,
            "max_rto" => stack.max_rto = time()?,
            "ack_delay" => stack.ack_delay = time()?,
            "user_timeout" => stack.user_timeout = time()?,
            "time_wait" => stack.time_wait = time()?,
            "fin_wait_2" => stack.fin_wait_2 = time()?,
            "iss" => self.iss = Some(number(name, value)?),
            "irs" => self.irs = number(name, value)?,
            "ip" => self.ipv6 = !one_of(["4", "6"])?,
            "consume" => self.consumes = one_of(["auto", "manual"])?,
            "push" => self.exact_push = one_of(["exact", "any"])?,
            "peer_window" => self.peer_window = number(name, value)?,
            "tolerance" => self.tolerance = time()?,
            _ => {
                return Err(Malformed {
                    expected: "a setting (README.md has them all)".to_owned(),
                    found: format!("\"{name}\""),
                });
            }
        }
        Ok(())
    }
}

fn number<T: std::str::FromStr>(name: &str, value: &str) -> Parsed<T> {
    value.parse().map_err(|_| Malformed {
        expected: format!("{name}=a number"),
        found: format!("\"{value}\""),
    })
}
