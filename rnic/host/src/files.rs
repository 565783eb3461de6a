//! Files for their owner alone, and whether files could be made, found out without doing so.
//!
//! It holds for the calling thread as it is now: with its effective user and capabilities.

use std::fs::{File, Metadata, OpenOptions};
use std::io;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::Path;

use rustix::fs::{Access, AtFlags, CWD, OFlags, accessat};
use rustix::io::Errno;

/// Read and written by the owner.
const FOR_OWNER: u32 = 0o600;
/// All rights of everybody else.
const OF_OTHERS: u32 = 0o077;
/// How often somebody else may make a file at the path before it is given up.
const ATTEMPTS: usize = 3;

/// That a file could be made at `path`, where none is: its directory is there, and may be written to.
///
/// # Errors
///
/// The kernel's.
pub fn check_directory(path: &Path) -> io::Result<()> {
    let directory = match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    };
    if !std::fs::metadata(directory)?.is_dir() {
        return Err(Errno::NOTDIR.into());
    }
    may(directory, Access::WRITE_OK | Access::EXEC_OK)
}

/// Makes an empty file that only its owner can read. A file of this user's that is there is replaced, so that
/// whoever has it open reads nothing of the new one. Links are not followed.
///
/// # Errors
///
/// Something else is there, or a file of another user's; the kernel's.
pub fn create_for_owner(path: &Path) -> io::Result<File> {
    let mut options = OpenOptions::new();
    options.write(true).mode(FOR_OWNER);
    // A pipe that came there meanwhile is not waited for.
    let flags = OFlags::NOFOLLOW | OFlags::NONBLOCK;
    options.custom_flags(flags.bits().cast_signed());
    for _ in 0..ATTEMPTS {
        match options.clone().create_new(true).open(path) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            made => return made,
        }
        check_replaceable(&path.symlink_metadata()?)?;
        match std::fs::remove_file(path) {
            Ok(()) => {}
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            // Made before rights were given up: no other process can have it open.
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
                let file = options.open(path)?;
                let found = file.metadata()?;
                check_replaceable(&found)?;
                if !is_for_owner(&found) {
                    return Err(error);
                }
                file.set_len(0)?;
                return Ok(file);
            }
            Err(error) => return Err(error),
        }
    }
    Err(Errno::EXIST.into())
}

/// That [`create_for_owner`] could make a file at `path`.
///
/// # Errors
///
/// As of that.
pub fn check_for_owner(path: &Path) -> io::Result<()> {
    match path.symlink_metadata() {
        Ok(found) => {
            check_replaceable(&found)?;
            check_directory(path).or_else(|error| match is_for_owner(&found) {
                true => may(path, Access::WRITE_OK),
                false => Err(error),
            })
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => check_directory(path),
        Err(error) => Err(error),
    }
}

/// The first port that needs no privilege, in the network namespace of the calling thread; `None` where the kernel does
/// not say.
pub fn unprivileged_port_start() -> Option<u16> {
    let text = std::fs::read_to_string("/proc/sys/net/ipv4/ip_unprivileged_port_start");
    text.ok()?.trim().parse().ok()
}

/// Whether no other user could open it.
fn is_for_owner(found: &Metadata) -> bool {
    found.nlink() == 1 && found.mode() & OF_OTHERS == 0
}

/// That a file is this user's, and one of bytes.
fn check_replaceable(found: &Metadata) -> io::Result<()> {
    if found.is_dir() {
        return Err(Errno::ISDIR.into());
    }
    let user = rustix::process::geteuid().as_raw();
    let what = match (found.file_type(), found.uid()) {
        (kind, _) if kind.is_symlink() => "a link is there, and none is followed".to_owned(),
        (kind, _) if !kind.is_file() => "something that is no ordinary file is there".to_owned(),
        (_, owner) if owner != user => {
            format!("a file of user {owner} is there, and this is user {user}")
        }
        _ => return Ok(()),
    };
    let told = format!("{what}: remove it, or name another file");
    Err(io::Error::new(io::ErrorKind::AlreadyExists, told))
}

fn may(path: &Path, access: Access) -> io::Result<()> {
    Ok(accessat(CWD, path, access, AtFlags::EACCESS)?)
}
