//! The tests of the workspace, found in its sources, under the names that nextest gives them.
//!
//! Sources are formatted (CI checks that), so attributes stand on lines of their own and the end of
//! an inline module is the brace below its `mod`.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use crate::read;

/// Each test, and whether it runs without being asked for.
pub type Tests = BTreeMap<String, bool>;

/// All tests of the members of the workspace at `root`.
pub fn tests_of(root: &Path) -> Tests {
    let mut tests = Tests::new();
    for path in members(root) {
        let manifest = read(&path.join("Cargo.toml"));
        let name = manifest
            .lines()
            .find_map(|line| line.strip_prefix("name = "));
        let package = name.expect("a package name").trim_matches('"');
        let has_lib = path.join("src/lib.rs").exists();
        for file in rust_files(&path) {
            if let Some(place) = place(package, &file, has_lib) {
                scan(&read(&path.join(&file)), &place, &mut tests);
            }
        }
    }
    tests
}

/// The folders of the members of the workspace at `root`.
fn members(root: &Path) -> Vec<PathBuf> {
    let manifest = read(&root.join("Cargo.toml"));
    let members = manifest.split_once("members = [").expect("members").1;
    let members = members.split_once(']').expect("an end of members").0;
    let members = members.split('"').skip(1).step_by(2);
    members.map(|member| root.join(member)).collect()
}

/// Files of integration tests that no file has as a module: their tests are never run.
pub fn files_of_no_module(root: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for package in members(root) {
        let is_module = |file: &String| match parent(&package, file) {
            Some((parent, module)) => {
                parent.exists()
                    && read(&parent).lines().any(|line| {
                        let line = line
                            .strip_suffix(';')
                            .and_then(|line| line.split_once("mod "));
                        line.is_some_and(|(_, name)| name == module)
                    })
            }
            None => true,
        };
        let files = rust_files(&package).into_iter();
        let lost = files.filter(|file| file.starts_with("tests/") && !is_module(file));
        found.extend(lost.map(|file| package.join(file)));
    }
    found
}

/// The file that has `file` as a module, and the module's name. A binary has none. Nor have files of a folder that is
/// no binary's: binaries name those by their paths.
fn parent(package: &Path, file: &str) -> Option<(PathBuf, String)> {
    let (folder, name) = file.strip_suffix(".rs")?.rsplit_once('/')?;
    let (folder, name) = match name {
        "mod" => folder.rsplit_once('/')?,
        _ => (folder, name),
    };
    let binary = folder.split('/').nth(1)?;
    if name == "main" || !package.join("tests").join(binary).join("main.rs").exists() {
        return None;
    }
    let candidates = [
        format!("{folder}/main.rs"),
        format!("{folder}.rs"),
        format!("{folder}/mod.rs"),
    ];
    let parents = candidates.map(|parent| package.join(parent));
    let parent = parents.iter().find(|parent| parent.exists());
    Some((parent.unwrap_or(&parents[1]).clone(), name.to_string()))
}

/// Paths below `package` of its sources and integration tests, with `/`.
fn rust_files(package: &Path) -> Vec<String> {
    let mut found = Vec::new();
    let mut folders = vec!["src".to_string(), "tests".to_string()];
    while let Some(folder) = folders.pop() {
        let Ok(entries) = std::fs::read_dir(package.join(&folder)) else {
            continue;
        };
        for entry in entries.map(|entry| entry.expect("a readable folder")) {
            let name = entry.file_name().into_string().expect("a name in UTF-8");
            let path = format!("{folder}/{name}");
            if entry.path().is_dir() {
                folders.push(path);
            } else if name.ends_with(".rs") {
                found.push(path);
            }
        }
    }
    found
}

/// What stands before the test's own name: `binary module::module::`.
fn place(package: &str, file: &str, has_lib: bool) -> Option<String> {
    let parts: Vec<&str> = file.strip_suffix(".rs")?.split('/').collect();
    let (binary, modules) = match parts[..] {
        ["src", "bin", name, ref modules @ ..] => (format!("{package}::bin/{name}"), modules),
        ["src", "main"] => (format!("{package}::bin/{package}"), &[][..]),
        ["src", ref modules @ ..] if has_lib => (package.to_string(), modules),
        ["src", ref modules @ ..] => (format!("{package}::bin/{package}"), modules),
        ["tests", name, ref modules @ ..] => (format!("{package}::{name}"), modules),
        _ => return None,
    };
    let modules: String = modules
        .iter()
        .filter(|module| !["lib", "main", "mod"].contains(module))
        .map(|module| format!("{module}::"))
        .collect();
    Some(format!("{binary} {modules}"))
}

/// Macros of a file that make tests: `#[test] fn $name` in their rules, and a line for each test
/// where they are used, beginning with its name and a colon.
#[derive(Default)]
struct Makers<'a> {
    /// The macro whose rules are being read.
    rules: Option<&'a str>,
    known: Vec<&'a str>,
    /// Where the use that is being read ends.
    used_at: Option<usize>,
}

impl<'a> Makers<'a> {
    /// Takes a line; gives the name of the test that it makes.
    fn take(&mut self, text: &'a str, indent: usize, is_test: bool) -> Option<&'a str> {
        if let Some(name) = text.strip_prefix("macro_rules! ") {
            self.rules = name.strip_suffix(" {");
        } else if is_test && text.starts_with("fn $") {
            self.known.extend(self.rules);
        } else if text == "}" && self.used_at == Some(indent) {
            self.used_at = None;
        } else if self.used_at.is_some() {
            return text.split_once(':').map(|(name, _)| name);
        } else if let Some(name) = text.strip_suffix("! {") {
            self.used_at = self.known.contains(&name).then_some(indent);
        }
        None
    }
}

/// Adds the tests of one file.
fn scan(source: &str, place: &str, tests: &mut Tests) {
    let mut inline: Vec<(usize, &str)> = Vec::new();
    let mut makers = Makers::default();
    let (mut is_test, mut runs) = (false, true);
    for line in source.lines() {
        let text = line.trim_start();
        let indent = line.len() - text.len();
        if text == "}" && inline.last().is_some_and(|(depth, _)| *depth == indent) {
            inline.pop();
        }
        if text.starts_with("#[") {
            is_test |= text == "#[test]";
            runs &= !text.starts_with("#[ignore") && !text.starts_with("#[cfg(");
            continue;
        }
        let words: Vec<&str> = text.split_whitespace().collect();
        if let ["mod", name, "{"] | ["pub", "mod", name, "{"] = words[..] {
            inline.push((indent, name));
        }
        let made = makers.take(text, indent, is_test);
        let written = text.strip_prefix("fn ").filter(|_| is_test).map(|name| {
            let end = name.find(|c: char| !c.is_alphanumeric() && c != '_');
            &name[..end.unwrap_or(name.len())]
        });
        if let Some(name) = made.or(written).filter(|name| !name.is_empty()) {
            let modules: String = inline.iter().map(|(_, of)| format!("{of}::")).collect();
            tests.insert(format!("{place}{modules}{name}"), runs);
        }
        if !text.starts_with("//") {
            (is_test, runs) = (false, true);
        }
    }
}

#[test]
fn tests_are_found_where_they_are_and_nothing_else() {
    let source = "fn a() {}\n\n#[test]\nfn b() {\n    fn c() {}\n}\n\n#[cfg(test)]\nmod tests {\n    \
                  /// Why.\n    #[test]\n    #[ignore = \"slow\"]\n    fn d() {}\n}\n\nproptest! {\n    \
                  #[test]\n    fn e(a: u8) {}\n}\n";
    let mut tests = Tests::new();
    scan(source, "p m::", &mut tests);
    let found = [("p m::b", true), ("p m::e", true), ("p m::tests::d", false)];
    assert_eq!(
        tests,
        found.map(|(name, runs)| (name.to_string(), runs)).into()
    );
}

#[test]
fn tests_that_a_macro_makes_are_found_by_its_use() {
    let source = "macro_rules! parts {\n    ($($name:ident: $n:literal,)*) => {$(\n        \
                  #[test]\n        fn $name() {}\n    )*};\n}\n\nparts! {\n    one: 1,\n    \
                  two: 2,\n}\n\nother! {\n    three: 3,\n}\n";
    let mut tests = Tests::new();
    scan(source, "p ", &mut tests);
    let found: Vec<&str> = tests.keys().map(String::as_str).collect();
    assert_eq!(found, ["p one", "p two"]);
}

#[test]
fn files_have_the_names_that_nextest_gives_them() {
    for (file, lib, name) in [
        ("src/lib.rs", true, "p "),
        ("src/a/b/tests.rs", true, "p a::b::tests::"),
        ("src/cli.rs", false, "p::bin/p cli::"),
        ("src/main.rs", true, "p::bin/p "),
        ("src/bin/tool/main.rs", true, "p::bin/tool "),
        ("tests/one.rs", true, "p::one "),
        ("tests/many/main.rs", true, "p::many "),
        ("tests/many/side.rs", true, "p::many side::"),
    ] {
        assert_eq!(place("p", file, lib).as_deref(), Some(name), "{file}");
    }
}

/// The tests of this very binary are where nextest has them.
#[test]
fn this_test_is_found_among_those_of_the_workspace() {
    let tests = tests_of(&crate::root());
    let name = "rnic-proto::conformance sources::this_test_is_found_among_those_of_the_workspace";
    assert_eq!(tests.get(name), Some(&true));
    assert!(tests.len() > 500, "{}", tests.len());
}
