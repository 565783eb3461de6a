//! The version that programs tell. A crate of its own, so that a commit builds nothing else anew.

#![forbid(unsafe_code)]

/// The version's number, and the commit in parentheses where it is known.
pub const VERSION: &str = env!("RNIC_VERSION");

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::VERSION;

    #[test]
    fn the_version_names_the_commit_of_sources_with_history() {
        let number = env!("CARGO_PKG_VERSION");
        let git = Command::new("git").args(["rev-parse", "HEAD"]).output();
        let head = git.ok().filter(|ran| ran.status.success());
        let head = head.map(|ran| String::from_utf8(ran.stdout).unwrap());
        let Some(head) = head.filter(|_| std::env::var_os("RNIC_COMMIT").is_none()) else {
            assert!(VERSION.starts_with(number), "{VERSION}");
            return;
        };
        assert_eq!(VERSION, format!("{number} ({})", &head[..9]));
    }
}
