//! The sentences in which the device refuses what the PRM granted.

use rnic_engine::command::CommandError;
pub(crate) use rnic_host::refused as host;
use rnic_ipc::control::{CONTROL_MESSAGE_MAX, MpaOptions, PRIVATE_DATA_MAX, Refusal, RefusalCode};
use rnic_ipc::ring::RingError;

/// Bytes of private data that MPA revision 2 takes for itself (RFC 6581 section 4.1).
const ENHANCED_WORDS: usize = 4;
/// Bytes of a refusal's message.
const MESSAGE_MAX: usize = CONTROL_MESSAGE_MAX / 2;

pub(crate) fn shutting_down() -> Refusal {
    refusal(
        RefusalCode::ShuttingDown,
        "the RNIC is shutting down: its daemon was told to end, as that of rnic-run is with its program",
    )
}

pub(crate) fn interface_gone(interface: &str) -> Refusal {
    refusal(
        RefusalCode::Host,
        &format!(
            "interface {interface} was taken away from the host: use another, or open it again when it \
             is back"
        ),
    )
}

/// The device of an interface is closed, and another one of the same name is about to be opened.
pub(crate) fn opened_again(interface: &str) -> Refusal {
    refusal(
        RefusalCode::ShuttingDown,
        &format!("interface {interface} is opened again: open the device again"),
    )
}

/// The configuration was read again, and names the interface no more.
pub(crate) fn not_served(interface: &str) -> Refusal {
    refusal(
        RefusalCode::ShuttingDown,
        &format!(
            "interface {interface} was taken out of the RNIC's configuration: use the device of another"
        ),
    )
}

/// The device of an interface that is not open yet.
pub(crate) fn waited_for(interface: &str, why: &str) -> Refusal {
    refusal(
        RefusalCode::Host,
        &format!("the RNIC waits for interface {interface}, and opens it by itself then: {why}"),
    )
}

pub(crate) fn command(error: CommandError) -> Refusal {
    let code = match &error {
        CommandError::Unknown { .. } => RefusalCode::UnknownObject,
        CommandError::WrongState { .. } => RefusalCode::WrongState,
        CommandError::Limit { .. } => RefusalCode::Limit,
        CommandError::InUse { .. } => RefusalCode::PortInUse,
        CommandError::NotPermitted(_) => RefusalCode::NotPermitted,
        CommandError::Invalid(_) => RefusalCode::Malformed,
    };
    refusal(code, &error.to_string())
}

/// A ring that the device makes for a client.
pub(crate) fn ring(error: RingError) -> Refusal {
    let code = match error {
        RingError::Capacity { .. } => RefusalCode::Limit,
        _ => RefusalCode::Host,
    };
    refusal(code, &format!("can't make a ring for the client: {error}"))
}

pub(crate) fn descriptors(wanted: usize, found: usize) -> Refusal {
    refusal(
        RefusalCode::Malformed,
        &format!("{found} descriptors came with the request, which takes {wanted}: pass {wanted}"),
    )
}

/// What both sides of a connection may ask for.
pub(crate) fn check_mpa(mpa: &MpaOptions, private_data: &[u8]) -> Result<(), Refusal> {
    let most = match mpa.revision {
        1 => PRIVATE_DATA_MAX,
        2 => PRIVATE_DATA_MAX - ENHANCED_WORDS,
        found => {
            return Err(refusal(
                RefusalCode::Malformed,
                &format!(
                    "MPA revision {found} asked, but only 1 and 2 exist: ask for one of these"
                ),
            ));
        }
    };
    check_private_data(private_data, most)
}

pub(crate) fn check_private_data(private_data: &[u8], most: usize) -> Result<(), Refusal> {
    if private_data.len() <= most {
        return Ok(());
    }
    Err(refusal(
        RefusalCode::Malformed,
        &format!(
            "{} bytes of private data given, but at most {most} fit: send the rest in a Send",
            private_data.len()
        ),
    ))
}

/// The end of a message that was too long.
const CUT_OFF: &str = "\n... (cut off here: the daemon's log has all)";

/// A refusal whose message fits a control message, however much the host had to say. One that is cut off says
/// so: a log line has it whole.
pub fn bounded(mut refusal: Refusal) -> Refusal {
    if refusal.message.len() > MESSAGE_MAX {
        let end = MESSAGE_MAX - CUT_OFF.len();
        refusal
            .message
            .truncate(refusal.message.floor_char_boundary(end));
        refusal.message += CUT_OFF;
    }
    refusal
}

pub(crate) fn refusal(code: RefusalCode, message: &str) -> Refusal {
    Refusal {
        code,
        message: message.to_owned(),
    }
}
