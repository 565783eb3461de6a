//! Loading a compiled program into the kernel, in the variant that is asked for.

use std::os::fd::{AsFd, BorrowedFd};

use aya::Ebpf;
use aya::programs::{Program, ProgramError, SocketFilter, Xdp};

use crate::error::{SteeringError, find_errno};

/// The two variants of a program: with and without frames of several buffers, which is what a
/// large MTU in native mode needs and what kernels before 5.18 do not know.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Variant {
    Frags,
    Plain,
}

/// An object that has a program in both variants.
pub(crate) trait Loadable {
    /// Loads a variant into the kernel, if it is not there yet.
    fn load(&mut self, variant: Variant) -> Result<BorrowedFd<'_>, SteeringError>;
}

/// Loads the XDP program `name` of an object, for `interface`.
pub(crate) fn load<'a>(
    ebpf: &'a mut Ebpf,
    interface: &str,
    name: &'static str,
) -> Result<BorrowedFd<'a>, SteeringError> {
    let program: &mut Xdp = find(ebpf, interface, name)?;
    loaded(interface, program.load())?;
    match program.fd() {
        Ok(fd) => Ok(fd.as_fd()),
        Err(error) => Err(refused(interface, error.to_string())),
    }
}

/// Loads the socket filter `name` of an object, for `interface`.
pub(crate) fn load_filter<'a>(
    ebpf: &'a mut Ebpf,
    interface: &str,
    name: &'static str,
) -> Result<&'a SocketFilter, SteeringError> {
    let program: &mut SocketFilter = find(ebpf, interface, name)?;
    loaded(interface, program.load())?;
    Ok(program)
}

fn find<'a, P>(ebpf: &'a mut Ebpf, interface: &str, name: &str) -> Result<&'a mut P, SteeringError>
where
    &'a mut P: TryFrom<&'a mut Program, Error = ProgramError>,
{
    let program = ebpf
        .program_mut(name)
        .ok_or_else(|| refused(interface, format!("there is no program {name}")))?;
    program
        .try_into()
        .map_err(|error| refused(interface, format!("{name} is of another kind: {error}")))
}

fn loaded(interface: &str, result: Result<(), ProgramError>) -> Result<(), SteeringError> {
    match result {
        Ok(()) | Err(ProgramError::AlreadyLoaded) => Ok(()),
        Err(error) => Err(match find_errno(&error) {
            Some(libc::EPERM | libc::EACCES) => {
                SteeringError::from_aya(interface, "load the BPF program", &error)
            }
            _ => refused(interface, error.to_string()),
        }),
    }
}

fn refused(interface: &str, reason: String) -> SteeringError {
    SteeringError::Load {
        interface: interface.to_owned(),
        reason,
    }
}
