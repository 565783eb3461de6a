//! Where the files are that `rnic-run` needs.

use std::ffi::{OsStr, OsString};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use super::RunError;

/// The library that programs of the verbs load.
pub const VERBS_LIBRARY: &str = "libibverbs.so.1";

const RNICD: &str = "rnicd";

/// The daemon's program: beside this one, where an installation puts daemons (`../sbin`), or in `path`,
/// which is the environment's PATH.
pub fn rnicd(own: &Path, path: Option<OsString>) -> Result<PathBuf, RunError> {
    let mut directories = vec![own.to_path_buf(), own.join("../sbin")];
    directories.extend(path.iter().flat_map(std::env::split_paths));
    let found = directories.iter().map(|directory| directory.join(RNICD));
    let found = found.into_iter().find(|file| is_program(file));
    found.ok_or(RunError::NoDaemonProgram(directories))
}

fn is_program(file: &Path) -> bool {
    let found = file.metadata();
    found.is_ok_and(|found| found.is_file() && found.permissions().mode() & 0o111 != 0)
}

/// The directory with the RNIC's own [`VERBS_LIBRARY`]: the `named` one, or else `../lib/rnic` or the
/// directory of this program, if the library is there.
///
/// # Errors
///
/// When the library is not in the directory that was named.
pub fn verbs_directory(own: &Path, named: Option<&Path>) -> Result<Option<PathBuf>, RunError> {
    let has_it = |directory: &PathBuf| directory.join(VERBS_LIBRARY).is_file();
    match named.map(Path::to_path_buf) {
        Some(named) if has_it(&named) => Ok(Some(absolute(named))),
        Some(path) => Err(RunError::NoVerbs { path }),
        None => {
            let found = verbs_places(own).into_iter().find(has_it);
            Ok(found.map(absolute))
        }
    }
}

/// Where the verbs library is looked for when nobody names its directory.
pub fn verbs_places(own: &Path) -> [PathBuf; 2] {
    [own.join("../lib/rnic"), own.to_path_buf()]
}

/// The program may change its working directory.
fn absolute(path: PathBuf) -> PathBuf {
    path.canonicalize().unwrap_or(path)
}

/// A list of directories with one more in front. An empty list stays without an empty member, which
/// would be the working directory.
pub fn in_front(directory: &Path, rest: Option<OsString>) -> OsString {
    let mut list = directory.as_os_str().to_owned();
    if let Some(rest) = rest.filter(|rest| !rest.is_empty()) {
        list.push(OsStr::new(":"));
        list.push(rest);
    }
    list
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tree(files: &[(&str, u32)]) -> tempfile::TempDir {
        let tree = tempfile::tempdir().expect("a directory");
        for (name, mode) in files {
            let path = tree.path().join(name);
            let directory = path.parent().expect("a parent");
            std::fs::create_dir_all(directory).expect("it is ours");
            std::fs::write(&path, "").expect("it is ours");
            let mode = PermissionsExt::from_mode(*mode);
            std::fs::set_permissions(&path, mode).expect("it is ours");
        }
        std::fs::create_dir_all(tree.path().join("bin")).expect("it is ours");
        tree
    }

    #[test]
    fn rnicd_is_found_beside_then_in_sbin_then_in_path() {
        let all = tree(&[
            ("bin/rnicd", 0o755),
            ("sbin/rnicd", 0o755),
            ("p/rnicd", 0o755),
        ]);
        let own = all.path().join("bin");
        let path = || Some(all.path().join("p").into_os_string());
        assert_eq!(rnicd(&own, path()).unwrap(), own.join("rnicd"));
        std::fs::remove_file(own.join("rnicd")).unwrap();
        assert_eq!(rnicd(&own, path()).unwrap(), own.join("../sbin/rnicd"));
        std::fs::remove_file(all.path().join("sbin/rnicd")).unwrap();
        assert_eq!(rnicd(&own, path()).unwrap(), all.path().join("p/rnicd"));
    }

    #[test]
    fn a_file_that_is_no_program_is_not_rnicd_and_the_error_names_the_places() {
        let one = tree(&[("bin/rnicd", 0o644)]);
        let own = one.path().join("bin");
        let error = rnicd(&own, Some("/nonexistent".into())).unwrap_err();
        let told = error.to_string();
        assert!(told.contains(&own.display().to_string()), "{told}");
        assert!(told.contains("/nonexistent"), "{told}");
    }

    #[test]
    fn the_verbs_libraries_are_used_only_where_they_are() {
        let none = tree(&[]);
        assert_eq!(
            verbs_directory(&none.path().join("bin"), None).unwrap(),
            None
        );
        let beside = tree(&[("bin/libibverbs.so.1", 0o644)]);
        let own = beside.path().join("bin");
        assert_eq!(
            verbs_directory(&own, None).unwrap(),
            own.canonicalize().ok()
        );
        let both = tree(&[
            ("bin/libibverbs.so.1", 0o644),
            ("lib/rnic/libibverbs.so.1", 0o644),
        ]);
        let lib = both.path().join("lib/rnic").canonicalize().unwrap();
        let own = both.path().join("bin");
        assert_eq!(verbs_directory(&own, None).unwrap(), Some(lib));
        let named = both.path().join("bin");
        assert_eq!(
            verbs_directory(Path::new("/nonexistent"), Some(&named)).unwrap(),
            named.canonicalize().ok()
        );
        let error = verbs_directory(&own, Some(none.path())).unwrap_err();
        assert!(error.to_string().contains("--verbs-dir"), "{error}");
    }

    #[test]
    fn an_empty_list_of_libraries_gets_no_empty_member() {
        let one = Path::new("/one");
        assert_eq!(in_front(one, None), "/one");
        assert_eq!(in_front(one, Some("".into())), "/one");
        assert_eq!(in_front(one, Some("/two".into())), "/one:/two");
    }
}
