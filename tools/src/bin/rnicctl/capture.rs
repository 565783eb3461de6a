//! The RNIC's frames to pcapng files, until somebody or something ends it.

use std::io::IsTerminal;
use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use clap::Args;
use rnic::Context;
use rnic::admin::{Capture, Direction, Filter};
use rnic::admin::{Kind, Object};
use rnic_tools::ctl::trace::{Ending, Ring, SIZE_MIN, STDOUT, Trace, TraceError};
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
    /// The file; with --size NAME-00001.EXTENSION and so on; - is standard output, for a pipe
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
    let ending = Ending::block()
        .map_err(|errno| usage(format!("SIGINT can't be waited for (signalfd): {errno}")))?;
    let piped = options.file == Path::new(STDOUT);
    if piped && options.size.is_some() {
        let why = "--size makes several files, and standard output (-) is one: leave it out, or name a file";
        return Err(usage(why.to_owned()));
    }
    if piped && std::io::stdout().is_terminal() {
        let why =
            "a capture to standard output (-) is for a pipe, and this is a terminal: name a file";
        return Err(usage(why.to_owned()));
    }
    let filter = filter(context, options)?;
    let ring = options.size.map(|size| Ring {
        size,
        files: options.files.unwrap_or(FILES),
    });
    // Refused by the RNIC, it leaves no file behind.
    let mut capture = context.capture(&filter)?;
    let interface = context.device_info()?.interface;
    let snap = filter.snap.unwrap_or(0);
    let mut trace = Trace::begin(&options.file, ring, &interface, snap, &ending)
        .map_err(|error| usage(error.to_string()))?;
    rnic_tools::errln!("capturing, end with Ctrl-C");
    let written = write(&mut capture, &mut trace, options, &ending)?;
    // The file is to be whole in any case.
    let ended = trace.end(capture.lost());
    let report = report(&trace, capture.lost(), as_json);
    match piped {
        true => rnic_tools::errln!("{report}"),
        false => rnic_tools::outln!("{report}"),
    }
    match written.and(ended) {
        // The reader of a pipe has seen enough.
        Err(error) if piped && error.is_closed_pipe() => Ok(()),
        other => other.map_err(|error| usage(error.to_string())),
    }
}

/// Until a signal, the number of frames or the time ends it; and then what is under way. The inner error is
/// the file's.
fn write(
    capture: &mut Capture,
    trace: &mut Trace,
    options: &Options,
    ending: &Ending,
) -> Result<Result<(), TraceError>, ToolError> {
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
                if let Err(error) = trace.frame(&frame, lost) {
                    return Ok(Err(error));
                }
                false
            }
            None => true,
        };
        looked = if quiet { LOOK_EVERY } else { looked + 1 };
        if looked < LOOK_EVERY && !enough(trace.frames()) {
            continue;
        }
        looked = 0;
        if quiet && let Err(error) = trace.flush() {
            return Ok(Err(error));
        }
        let signal = ending.take();
        if stopped {
            // A second wish to end does not wait for the rest.
            if signal.is_some() {
                return Ok(Ok(()));
            }
            continue;
        }
        let late = end.is_some_and(|end| Instant::now() >= end);
        if signal.is_some() || late || enough(trace.frames()) {
            capture.stop()?;
            stopped = true;
        }
    }
    Ok(Ok(()))
}

fn report(trace: &Trace, lost: u64, as_json: bool) -> String {
    let (frames, bytes) = (trace.frames(), trace.bytes());
    let files: Vec<String> = trace
        .paths()
        .map(|path| path.display().to_string())
        .collect();
    if as_json {
        json!({ "frames": frames, "lost": lost, "bytes": bytes, "files": files }).to_string()
    } else {
        let first = format!(
            "{frames} frames written ({}), {lost} lost",
            size::show(bytes)
        );
        [&[first], &files[..]].concat().join("\n")
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
