//! How many receive queues an interface has.

use crate::error::SteeringError;
use crate::sys;

/// The number of receive queues of an interface in the calling thread's network namespace: 1 when
/// the driver can't tell.
///
/// It asks the driver (as `ethtool -l` does) rather than look at `/sys/class/net`: sysfs shows the
/// network namespace it was mounted in, which is not the thread's after a `setns`.
///
/// # Errors
///
/// When there is no such interface, or the kernel refuses.
pub fn number_of_rx_queues(interface: &str) -> Result<u32, SteeringError> {
    match sys::channels(interface) {
        Ok(channels) => Ok(channels.rx.saturating_add(channels.combined).max(1)),
        Err(error) if error.raw_os_error() == Some(libc::EOPNOTSUPP) => Ok(1),
        Err(error) => Err(SteeringError::kernel(interface, "count its queues", error)),
    }
}
