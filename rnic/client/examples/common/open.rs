//! How the examples open their RNIC and look at completions.

use rnic::{Context, Device, DeviceConfig, WcStatus, WorkCompletion};

/// Any error; `Send`, so that threads can hand it on.
pub type Failure = Box<dyn std::error::Error + Send + Sync>;

/// The RNIC that the first argument names: a daemon's socket, or `embedded:INTERFACE` for one in
/// this process, which needs the daemon's rights.
pub fn open(place: &str) -> Result<Context, Failure> {
    Ok(match place.strip_prefix("embedded:") {
        Some(interface) => Context::embedded(&Device::open(DeviceConfig::new(interface))?)?,
        None => Context::open(place)?,
    })
}

/// The completion, when its work succeeded.
pub fn succeeded(done: WorkCompletion) -> Result<WorkCompletion, Failure> {
    match done.status {
        WcStatus::Success => Ok(done),
        status => Err(format!("{:?} failed: {status:?}", done.opcode).into()),
    }
}
