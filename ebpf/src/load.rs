//! Loading a compiled program into the kernel, in the variant that is asked for.

use std::os::fd::{AsFd, BorrowedFd};

use aya::Ebpf;
use aya::programs::{ProgramError, Xdp};

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

/// Loads the program `name` of an object, for `interface`.
pub(crate) fn load<'a>(
    ebpf: &'a mut Ebpf,
    interface: &str,
    name: &'static str,
) -> Result<BorrowedFd<'a>, SteeringError> {
    let load_error = |reason: String| SteeringError::Load {
        interface: interface.to_owned(),
        reason,
    };
    let program: &mut Xdp = match ebpf.program_mut(name) {
        Some(program) => program
            .try_into()
            .map_err(|error| load_error(format!("{name} is not an XDP program: {error}")))?,
        None => return Err(load_error(format!("there is no program {name}"))),
    };
    match program.load() {
        Ok(()) | Err(ProgramError::AlreadyLoaded) => {}
        Err(error) => {
            return Err(match find_errno(&error) {
                Some(libc::EPERM | libc::EACCES) => {
                    SteeringError::from_aya(interface, "load the XDP program", &error)
                }
                _ => load_error(error.to_string()),
            });
        }
    }
    match program.fd() {
        Ok(fd) => Ok(fd.as_fd()),
        Err(error) => Err(load_error(error.to_string())),
    }
}
