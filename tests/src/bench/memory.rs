//! No kernel at all: `rnic-engine`'s benchmark, two engines in one thread joined by a link in memory,
//! what the machine needs for CRC and copy alone, and what it needs to verify before it copies.

use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;

use super::rnic::size_name;
use super::{Figures, GBIT, MESSAGES, Testbed, interrupt};

/// Engines or bare work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MemoryWork {
    Engine,
    /// CRC and copy.
    Bare,
    /// CRC and TCP checksum, in one pass, before the copy: the least that a receiver must do whose
    /// adapter verifies no checksum, because what is wrong is not to be placed.
    Verified,
}

impl MemoryWork {
    /// As the program and tables have it.
    fn name(self) -> &'static str {
        match self {
            Self::Engine => "engine",
            Self::Bare => "bare",
            Self::Verified => "verified",
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MemoryRun {
    /// Engines or bare work.
    pub work: MemoryWork,
    /// Bytes of a message, or of a payload of the bare work.
    pub size: u32,
    /// IP MTU in bytes.
    pub mtu: u32,
}

impl MemoryRun {
    #[must_use]
    pub fn name(&self) -> String {
        let work = self.work.name();
        format!("memory-{work}-{}@{}", size_name(self.size), self.mtu)
    }
}

/// What runs of one kind did.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Done {
    bytes: f64,
    messages: f64,
    /// Nanoseconds that the receiving engine worked.
    receiving: f64,
    /// Nanoseconds that both did.
    all: f64,
}

impl Done {
    /// With what was done besides.
    pub(super) fn and(self, other: Self) -> Self {
        Self {
            bytes: self.bytes + other.bytes,
            messages: self.messages + other.messages,
            receiving: self.receiving + other.receiving,
            all: self.all + other.all,
        }
    }

    /// Of engines, [`GBIT`] goes by the time that the receiving one works itself. [`MESSAGES`] goes by the time that
    /// both work, without the link's. Of bare work both go by all of its time.
    pub(super) fn figures(self) -> Figures {
        Figures::from([
            (GBIT, self.bytes * 8.0 / self.receiving.max(1.0)),
            (MESSAGES, self.messages * 1e9 / self.all.max(1.0)),
        ])
    }
}

pub(super) fn run(testbed: &Testbed, run: &MemoryRun, duration: Duration) -> Result<Done, String> {
    let program = testbed
        .memory
        .as_ref()
        .ok_or("no benchmark of rnic-engine")?;
    let mut command = Command::new(program);
    command
        .arg(run.work.name())
        .args(["--bytes", &run.size.to_string()])
        .args(["--mtu", &run.mtu.to_string()])
        .args(["--seconds", &duration.as_secs_f64().to_string()]);
    if run.work == MemoryWork::Engine {
        let in_flight = ((1 << 20) / run.size.max(1)).clamp(4, 64);
        command.args(["--in-flight", &in_flight.to_string()]);
    }
    let report: Value = output(&mut command, testbed.limit())?;
    let number = |key: &str| {
        let value = report[key].as_f64();
        value.ok_or_else(|| format!("no {key} in {report}"))
    };
    let (receiving, all) = match run.work {
        MemoryWork::Engine => {
            let receiver = number("receiver_nanoseconds")?;
            (receiver, receiver + number("sender_nanoseconds")?)
        }
        MemoryWork::Bare | MemoryWork::Verified => (number("nanoseconds")?, number("nanoseconds")?),
    };
    Ok(Done {
        bytes: number("bytes")?,
        messages: number("messages")?,
        receiving,
        all,
    })
}

/// The JSON that a program writes.
fn output(command: &mut Command, limit: Duration) -> Result<Value, String> {
    let line = format!("{command:?}");
    let failed = |error: &dyn std::fmt::Display| format!("{line}: {error}");
    let child = command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn();
    let mut child = child.map_err(|error| failed(&error))?;
    let begin = Instant::now();
    let status = loop {
        if let Some(status) = child.try_wait().map_err(|error| failed(&error))? {
            break status;
        }
        if begin.elapsed() > limit || interrupt::came() {
            // It may have ended meanwhile.
            let _ = child.kill();
            let _ = child.wait();
            return Err(format!("{line} was cut short after {:?}", begin.elapsed()));
        }
        std::thread::sleep(Duration::from_millis(5));
    };
    let output = child.wait_with_output().map_err(|error| failed(&error))?;
    let text = String::from_utf8_lossy(&output.stdout);
    if !status.success() {
        return Err(format!("{line}: {status}\n{text}"));
    }
    serde_json::from_str(&text).map_err(|error| format!("no JSON ({error}) from {line}: {text}"))
}
