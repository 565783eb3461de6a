//! The RNIC's frames to pcapng files, until somebody or something ends it.

use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::time::{Duration, Instant};

use clap::Args;
use rnic::inspect::{Kind, Object};
use rnic::{Capture, Context, Direction, Filter};
use rnic_device::host::Signals;
use rnic_tools::ctl::trace::{Ring, SIZE_MIN, Trace};
use rnic_tools::endpoint::ToolError;
use rnic_tools::size;
use serde_json::json;

/// Files of a ring when nothing is said.
const FILES: usize = 2;
/// The longest wait for a frame before signals and the time are looked at.
const LOOK_ROUND: Duration = Duration::from_millis(100);
/// Frames between two looks when many come.
const LOOK_EVERY: u32 = 256;

/// What to capture, whereto, and until when.
#[derive(Debug, Args)]
pub(crate) struct Options {
    /// The file; with --size NAME-00001.EXTENSION and so on
    #[arg(value_name = "FILE")]
    file: PathBuf,
    /// Only frames from and to this peer
    #[arg(long, value_name = "ADDRESS")]
    peer: Option<IpAddr>,
    /// Only frames from or to this TCP port, of either end
    #[arg(long, value_name = "NUMBER")]
    port: Option<u16>,
    /// Only this connection, as `rnicctl connections` shows it
    #[arg(long, value_name = "NUMBER", conflicts_with = "qp")]
    connection: Option<u32>,
    /// Only the connection that this queue pair has now, as `rnicctl qps` shows it
    #[arg(long, value_name = "NUMBER")]
    qp: Option<u32>,
    /// Only what is received
    #[arg(long = "in", conflicts_with = "outbound")]
    inbound: bool,
    /// Only what is sent
    #[arg(long = "out")]
    outbound: bool,
    /// Keep at most so many bytes of each frame
    #[arg(long, value_name = "BYTES", value_parser = clap::value_parser!(u32).range(1..))]
    snap: Option<u32>,
    /// Begin another file when one would be larger than this (such as 10M)
    #[arg(long, value_name = "BYTES", value_parser = file_size)]
    size: Option<u64>,
    /// Keep so many files, the oldest go [default: 2]
    #[arg(long, value_name = "NUMBER", requires = "size", value_parser = files)]
    files: Option<usize>,
    /// End after so many frames
    #[arg(long, value_name = "FRAMES", value_parser = clap::value_parser!(u64).range(1..))]
    count: Option<u64>,
    /// End after so long (such as 10s)
    #[arg(long, value_name = "TIME", value_parser = size::duration)]
    duration: Option<Duration>,
}

pub(crate) fn answer(context: &Context, options: &Options, as_json: bool) -> Result<(), ToolError> {
    let usage = |error: String| ToolError::Usage(error);
    let signals = Signals::block()
        .map_err(|errno| usage(format!("SIGINT can't be waited for (signalfd): {errno}")))?;
    let filter = filter(context, options)?;
    let ring = options.size.map(|size| Ring {
        size,
        files: options.files.unwrap_or(FILES),
    });
    // Refused by the RNIC, it leaves no file behind.
    let mut capture = context.capture(&filter)?;
    let interface = context.device_info()?.interface;
    let snap = filter.snap.unwrap_or(0);
    let mut trace = Trace::begin(&options.file, ring, &interface, snap)
        .map_err(|error| usage(error.to_string()))?;
    rnic_tools::errln!("capturing, end with Ctrl-C");
    let written = write(&mut capture, &mut trace, options, &signals);
    // The file is to be whole in any case.
    let ended = trace.end(capture.lost());
    report(&trace, capture.lost(), as_json);
    written?;
    ended.map_err(|error| usage(error.to_string()))
}

/// Until a signal, the number of frames or the time ends it; and then what is under way.
fn write(
    capture: &mut Capture,
    trace: &mut Trace,
    options: &Options,
    signals: &Signals,
) -> Result<(), ToolError> {
    let end = options.duration.map(|duration| Instant::now() + duration);
    let enough = |frames: u64| options.count.is_some_and(|count| frames >= count);
    let mut stopped = false;
    let mut looked = 0;
    while !capture.is_over() {
        let lost = capture.lost();
        let quiet = match capture.next(LOOK_ROUND)? {
            // What came too late is no part of the capture.
            Some(_) if enough(trace.frames()) => false,
            Some(frame) => {
                let written = trace.frame(&frame, lost);
                written.map_err(|error| ToolError::Usage(error.to_string()))?;
                false
            }
            None => true,
        };
        looked = if quiet { LOOK_EVERY } else { looked + 1 };
        if looked < LOOK_EVERY && !enough(trace.frames()) {
            continue;
        }
        looked = 0;
        if quiet {
            let flushed = trace.flush();
            flushed.map_err(|error| ToolError::Usage(error.to_string()))?;
        }
        let signal = signals.take();
        if stopped {
            // A second wish to end does not wait for the rest.
            if signal.is_some() {
                return Ok(());
            }
            continue;
        }
        let late = end.is_some_and(|end| Instant::now() >= end);
        if signal.is_some() || late || enough(trace.frames()) {
            capture.stop()?;
            stopped = true;
        }
    }
    Ok(())
}

fn report(trace: &Trace, lost: u64, as_json: bool) {
    let (frames, bytes) = (trace.frames(), trace.bytes());
    let files: Vec<String> = trace
        .paths()
        .map(|path| path.display().to_string())
        .collect();
    if as_json {
        let report = json!({ "frames": frames, "lost": lost, "bytes": bytes, "files": files });
        rnic_tools::outln!("{report}");
    } else {
        let bytes = size::show(bytes);
        rnic_tools::outln!("{frames} frames written ({bytes}), {lost} lost");
        files.iter().for_each(|file| rnic_tools::outln!("{file}"));
    }
}

fn filter(context: &Context, options: &Options) -> Result<Filter, ToolError> {
    let direction = match (options.inbound, options.outbound) {
        (true, _) => Some(Direction::In),
        (_, true) => Some(Direction::Out),
        _ => None,
    };
    let ends = match (options.connection, options.qp) {
        (Some(number), _) => Some(crate::ends_of_connection(context, number)?),
        (_, Some(number)) => Some(ends_of_qp(context, number)?),
        _ => None,
    };
    Ok(Filter {
        peer: options.peer,
        port: options.port,
        ends,
        direction,
        snap: options.snap,
    })
}

fn ends_of_qp(context: &Context, number: u32) -> Result<(SocketAddr, SocketAddr), ToolError> {
    let queue_pairs = context.inspect(Kind::QueuePairs)?;
    let found = queue_pairs.into_iter().find_map(|object| match object {
        Object::QueuePair(one) if one.qp.0 == number => Some(one.connection),
        _ => None,
    });
    let why = match found {
        Some(Some(ends)) => return Ok(ends),
        Some(None) => format!(
            "queue pair {number} has no connection: capture when it has one, or by --peer and --port"
        ),
        None => format!("there is no queue pair {number}, or it is not yours to see"),
    };
    Err(ToolError::Usage(why))
}

fn file_size(text: &str) -> Result<u64, String> {
    let bytes = size::bytes(text)?;
    if bytes < SIZE_MIN {
        return Err(format!("a file has at least {SIZE_MIN} bytes"));
    }
    Ok(bytes)
}

fn files(text: &str) -> Result<usize, String> {
    let parsed = text.parse().ok().filter(|files| *files >= 1);
    parsed.ok_or_else(|| "give a number of files, at least 1".to_owned())
}
