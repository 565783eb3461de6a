//! Users and groups of this host, by name or by number.

use nix::unistd::{Gid, Group, Uid, User};

/// The number of the user that is called this, or has it for a number.
pub(crate) fn uid(text: &str) -> Result<u32, String> {
    number_or(text, "user", |name| {
        User::from_name(name).map(|found| found.map(|user| user.uid.as_raw()))
    })
}

/// A user that the daemon may run as.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Account {
    pub(crate) uid: u32,
    /// Its first group; of a number that the host does not know, the same number.
    pub(crate) gid: u32,
}

/// The user that is called this, or has it for a number, and is not root.
pub(crate) fn account(text: &str) -> Result<Account, String> {
    let uid = uid(text)?;
    if uid == 0 {
        return Err(format!(
            "user {text} is root: name one with no rights of its own, or leave --user out"
        ));
    }
    let found = User::from_uid(Uid::from_raw(uid)).ok().flatten();
    let gid = found.map_or(uid, |user| user.gid.as_raw());
    Ok(Account { uid, gid })
}

/// The number of the group that is called this, or has it for a number.
pub(crate) fn gid(text: &str) -> Result<u32, String> {
    number_or(text, "group", |name| {
        Group::from_name(name).map(|found| found.map(|group| group.gid.as_raw()))
    })
}

/// A user as people read it.
pub(crate) fn user(uid: u32) -> String {
    let found = User::from_uid(Uid::from_raw(uid)).ok().flatten();
    found.map_or_else(
        || format!("uid {uid}"),
        |user| format!("{} (uid {uid})", user.name),
    )
}

/// A group as people read it.
pub(crate) fn group(gid: u32) -> String {
    let found = Group::from_gid(Gid::from_raw(gid)).ok().flatten();
    found.map_or_else(
        || format!("gid {gid}"),
        |group| format!("{} (gid {gid})", group.name),
    )
}

fn number_or(
    text: &str,
    kind: &str,
    look_up: impl Fn(&str) -> nix::Result<Option<u32>>,
) -> Result<u32, String> {
    if let Ok(number) = text.parse() {
        return Ok(number);
    }
    match look_up(text) {
        Ok(Some(number)) => Ok(number),
        Ok(None) => Err(format!(
            "this host knows no {kind} {text}: give one that it knows, or a number"
        )),
        Err(errno) => Err(format!(
            "{kind} {text} can't be looked up: {errno}: give its number"
        )),
    }
}
