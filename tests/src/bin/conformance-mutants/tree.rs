//! The copy of the sources that mutants are made in.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::mutants::Edit;

/// Where the version of all packages is. All trees are built in one folder, where cargo knows a package by its path in
/// its workspace and its version: it would take what it has built of one tree for the other's.
const WORKSPACE: &str = "Cargo.toml";
/// A copy of the sources, as they are in the work tree.
pub struct Tree {
    path: PathBuf,
    /// The files that are changed, with what they had.
    changed: Vec<(PathBuf, String)>,
}

impl Tree {
    /// Copies the work tree at `root` to `path`. A file that is there already and the same is left
    /// alone, so that it is not built again. The version of the copy's packages ends with `name`.
    pub fn copy(root: &Path, path: &Path, name: &str) -> Result<Self, String> {
        let told = |error: std::io::Error| format!("copying the sources: {error}");
        let listed = Command::new("git")
            .args([
                "ls-files",
                "-z",
                "--cached",
                "--others",
                "--exclude-standard",
            ])
            .current_dir(root)
            .output()
            .map_err(told)?;
        let names = String::from_utf8_lossy(&listed.stdout).into_owned();
        let mut names: BTreeSet<&str> = names.split('\0').filter(|name| !name.is_empty()).collect();
        if names.is_empty() {
            return Err("git lists no sources: is this its work tree?".to_string());
        }
        // Not kept, and wanted: with it nothing is resolved again.
        names.insert("Cargo.lock");
        for file in &names {
            let (from, to) = (root.join(file), path.join(file));
            let Ok(mut text) = std::fs::read(&from) else {
                continue;
            };
            if *file == WORKSPACE {
                text = with_version(&String::from_utf8_lossy(&text), name)?.into_bytes();
            }
            if std::fs::read(&to).is_ok_and(|found| found == text) {
                continue;
            }
            let folder = to.parent().unwrap_or(path);
            std::fs::create_dir_all(folder).map_err(told)?;
            // With its mode.
            std::fs::copy(&from, &to).map_err(told)?;
            std::fs::write(&to, &text).map_err(told)?;
            // When it was written here is what cargo goes by.
            touch(&to)?;
        }
        remove_others(path, path, &names)?;
        Ok(Self {
            path: path.to_path_buf(),
            changed: Vec::new(),
        })
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Makes the changes, or none of them, when one does not apply.
    pub fn mutate(&mut self, edits: &[Edit]) -> Result<Result<(), String>, String> {
        for edit in edits {
            let path = self.path.join(&edit.file);
            let text = std::fs::read_to_string(&path);
            let text = text.map_err(|error| format!("{}: {error}", edit.file))?;
            match edit.apply(&text) {
                Ok(mutant) => {
                    write(&path, &mutant)?;
                    self.changed.push((path, text));
                }
                Err(why) => {
                    self.restore()?;
                    return Ok(Err(format!("{}: {why}", edit.file)));
                }
            }
        }
        Ok(Ok(()))
    }

    /// Takes the changes back.
    pub fn restore(&mut self) -> Result<(), String> {
        while let Some((path, text)) = self.changed.pop() {
            write(&path, &text)?;
        }
        Ok(())
    }
}

/// Also when judging ends early: the next run copies what differs, but this says what is meant.
impl Drop for Tree {
    fn drop(&mut self) {
        if let Err(error) = self.restore() {
            eprintln!("conformance-mutants: {error}");
        }
    }
}

/// The workspace's manifest, with a version that ends with this name.
fn with_version(manifest: &str, name: &str) -> Result<String, String> {
    let section = manifest.find("[workspace.package]");
    let of_section = section.and_then(|at| {
        let version = "\nversion = \"";
        Some(at + manifest[at..].find(version)? + version.len())
    });
    let end = of_section.and_then(|at| Some(at + manifest[at..].find('"')?));
    let end = end.ok_or("Cargo.toml: no version in [workspace.package]")?;
    let (before, after) = manifest.split_at(end);
    Ok(format!("{before}+{name}{after}"))
}

fn write(path: &Path, text: &str) -> Result<(), String> {
    std::fs::write(path, text).map_err(|error| format!("{}: {error}", path.display()))
}

fn touch(path: &Path) -> Result<(), String> {
    let file = std::fs::OpenOptions::new().append(true).open(path);
    file.and_then(|file| file.set_modified(std::time::SystemTime::now()))
        .map_err(|error| format!("{}: {error}", path.display()))
}

/// Where the work tree is built.
pub fn target_of(root: &Path) -> PathBuf {
    let own = std::env::var_os("CARGO_TARGET_DIR").map(PathBuf::from);
    own.map_or(root.join("target"), |own| root.join(own))
}

/// Removes what is not among the sources any more.
fn remove_others(root: &Path, folder: &Path, names: &BTreeSet<&str>) -> Result<(), String> {
    let told = |error: std::io::Error| format!("{}: {error}", folder.display());
    for entry in std::fs::read_dir(folder).map_err(told)? {
        let path = entry.map_err(told)?.path();
        let name = path.strip_prefix(root).unwrap_or(&path);
        if path.is_dir() {
            remove_others(root, &path, names)?;
        } else if !name.to_str().is_some_and(|name| names.contains(name)) {
            std::fs::remove_file(&path).map_err(told)?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packages_of_the_copy_are_not_taken_for_those_of_the_work_tree() {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../Cargo.toml");
        let manifest = std::fs::read_to_string(path).unwrap();
        let copy = with_version(&manifest, "copy").unwrap();
        let own = format!("\nversion = \"{}\"\n", env!("CARGO_PKG_VERSION"));
        assert_eq!(manifest.matches(&own).count(), 1);
        let others = format!("\nversion = \"{}+copy\"\n", env!("CARGO_PKG_VERSION"));
        assert_eq!(copy, manifest.replace(&own, &others));
        assert!(with_version("[package]", "copy").is_err());
    }
}
