//! Who may use a socket that this user may not: its group, for people.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use rustix::fs::Mode;

/// Where the host's own groups are.
const GROUPS: &str = "/etc/group";

/// What opens the socket to this user. Where the socket can't be looked at, its directory is what is closed.
pub(super) fn advice(socket: &Path) -> String {
    let of = |path: &Path| {
        let found = fs::metadata(path).ok()?;
        Some((found.gid(), Mode::from_raw_mode(found.mode())))
    };
    let open = match (of(socket), socket.parent()) {
        (Some((gid, mode)), _) => mode
            .contains(Mode::RGRP | Mode::WGRP)
            .then_some((socket, gid)),
        (None, Some(directory)) => of(directory)
            .filter(|(_, mode)| mode.contains(Mode::XGRP))
            .map(|(gid, _)| (directory, gid)),
        (None, None) => None,
    };
    let groups = fs::read_to_string(GROUPS).unwrap_or_default();
    sentence(open, &groups)
}

/// The same of what a group has open, with the text of group(5).
fn sentence(open: Option<(&Path, u32)>, groups: &str) -> String {
    // Of root's group is nobody who is not to have all of the host.
    let Some((path, gid)) = open.filter(|(_, gid)| *gid != 0) else {
        return "no group of users may: have the daemon started with `socket_group = \"GROUP\"`, and USER \
                added to that group"
            .to_owned();
    };
    let path = path.display();
    match name_of(gid, groups) {
        Some(name) => {
            format!(
                "{path} is open to group {name}: `adduser USER {name}` as root, then log in again"
            )
        }
        None => format!("{path} is open to group {gid}: have USER added to it, then log in again"),
    }
}

/// The name of a group in the text of group(5).
fn name_of(gid: u32, groups: &str) -> Option<&str> {
    groups.lines().find_map(|line| {
        let mut fields = line.split(':');
        let name = fields.next()?;
        (fields.nth(1)?.parse() == Ok(gid)).then_some(name)
    })
}

#[cfg(test)]
mod tests;
