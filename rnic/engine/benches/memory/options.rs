//! The command line.

use std::time::Duration;

use rnic_ipc::work::WrOpcode;

/// Bytes of memory that messages go round in, as those of `rnic-perf` do, and bare copies too.
pub const SPAN: usize = 1 << 20;

pub const USAGE: &str = "use: memory engine|idle|bare|verified [--operation write|send|read] [--bytes N] \
    [--mtu N] [--in-flight N] [--queue-pairs N] [--markers] [--no-crc] [--interleave N] [--window N] \
    [--warm-up N] [--shards N] [--seconds N | --messages N]";

pub enum Case {
    Engine,
    Idle,
    Bare,
    Verified,
}

pub struct Options {
    pub operation: WrOpcode,
    pub bytes: usize,
    pub mtu: u32,
    /// Work requests under way on each queue pair.
    pub in_flight: u64,
    pub queue_pairs: usize,
    /// Segments of one connection that reach the receiver before those of the next do.
    pub interleave: Option<usize>,
    /// Receive window of each connection, in bytes.
    pub window: Option<u32>,
    /// Shards of each host, each with its own thread, queue pairs and link.
    pub shards: usize,
    pub markers: bool,
    pub crc: bool,
    /// Messages before anything is counted.
    pub warm_up: u64,
    pub until: Until,
}

#[derive(Clone, Copy)]
pub enum Until {
    Lasted(Duration),
    Done(u64),
}

pub fn parse(words: impl Iterator<Item = String>) -> Result<(Case, Options), String> {
    let mut words = words;
    let case = match words.next().as_deref() {
        Some("engine") => Case::Engine,
        Some("idle") => Case::Idle,
        Some("bare") => Case::Bare,
        Some("verified") => Case::Verified,
        other => {
            return Err(format!(
                "engine, idle, bare or verified is wanted, not {other:?}"
            ));
        }
    };
    let mut options = Options {
        operation: WrOpcode::Write,
        bytes: 1 << 20,
        mtu: 1500,
        in_flight: 8,
        queue_pairs: 1,
        interleave: None,
        window: None,
        shards: 1,
        markers: false,
        crc: true,
        warm_up: 4,
        until: Until::Lasted(Duration::from_secs(1)),
    };
    while let Some(word) = words.next() {
        let mut number = || -> Result<u64, String> {
            let value = words.next().ok_or(format!("{word} wants a number"))?;
            value
                .parse()
                .map_err(|_| format!("{word} wants a number, not {value}"))
        };
        match word.as_str() {
            "--bytes" => options.bytes = number()? as usize,
            "--mtu" => options.mtu = number()? as u32,
            "--in-flight" => options.in_flight = number()?.max(1),
            "--queue-pairs" => options.queue_pairs = number()?.max(1) as usize,
            "--interleave" => options.interleave = Some(number()?.max(1) as usize),
            "--window" => options.window = Some(number()?.max(1) as u32),
            "--shards" => options.shards = number()?.max(1) as usize,
            "--warm-up" => options.warm_up = number()?,
            "--seconds" => {
                let seconds = words.next().and_then(|word| word.parse().ok());
                let time = seconds.and_then(|seconds| Duration::try_from_secs_f64(seconds).ok());
                options.until = Until::Lasted(time.ok_or("--seconds wants a positive number")?);
            }
            "--messages" => options.until = Until::Done(number()?),
            "--markers" => options.markers = true,
            "--no-crc" => options.crc = false,
            "--operation" => {
                options.operation = match words.next().as_deref() {
                    Some("write") => WrOpcode::Write,
                    Some("send") => WrOpcode::Send,
                    Some("read") => WrOpcode::Read,
                    other => return Err(format!("--operation knows no {other:?}")),
                };
            }
            _ => return Err(format!("unknown option {word}")),
        }
    }
    Ok((case, options))
}
