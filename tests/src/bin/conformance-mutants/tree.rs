//! The copy of the sources that mutants are made in.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::mutants::Edit;

/// A copy of the sources, as they are in the work tree.
pub struct Tree {
    path: PathBuf,
    /// The files that are changed, with what they had.
    changed: Vec<(PathBuf, String)>,
}

impl Tree {
    /// Copies the work tree at `root` to `path`. A file that is there already and the same is left
    /// alone, so that it is not built again.
    pub fn copy(root: &Path, path: &Path) -> Result<Self, String> {
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
        for name in &names {
            let (from, to) = (root.join(name), path.join(name));
            let Ok(text) = std::fs::read(&from) else {
                continue;
            };
            if std::fs::read(&to).is_ok_and(|found| found == text) {
                continue;
            }
            let folder = to.parent().unwrap_or(path);
            std::fs::create_dir_all(folder).map_err(told)?;
            std::fs::copy(&from, &to).map_err(told)?;
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

fn write(path: &Path, text: &str) -> Result<(), String> {
    std::fs::write(path, text).map_err(|error| format!("{}: {error}", path.display()))
}

fn touch(path: &Path) -> Result<(), String> {
    let file = std::fs::OpenOptions::new().append(true).open(path);
    file.and_then(|file| file.set_modified(std::time::SystemTime::now()))
        .map_err(|error| format!("{}: {error}", path.display()))
}

/// Removes what is not among the sources any more.
/// Where the work tree is built.
pub fn target_of(root: &Path) -> PathBuf {
    let own = std::env::var_os("CARGO_TARGET_DIR").map(PathBuf::from);
    own.map_or(root.join("target"), |own| root.join(own))
}

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
