//! Manual pages and shell completions of the programs, from their definitions of the command line (clap).
//!
//! Each program's own tests call [`assert_documented`]: only they see the definition, and what makes the pages
//! is part of no program. With the variable [`DIRECTORY_VARIABLE`] they leave the files there, which is how
//! `scripts/package` gets them.

#![forbid(unsafe_code)]

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use clap::Command;
use clap_complete::Shell;
use clap_mangen::Man;

/// The environment variable that names the directory for the files.
pub const DIRECTORY_VARIABLE: &str = "RNIC_PAGES";

/// All pages that there are: what each refers to.
const PAGES: [&str; 6] = [
    "rnicd(8)",
    "rnicd.toml(5)",
    "rnicctl(1)",
    "rnic-ping(1)",
    "rnic-perf(1)",
    "rnic-run(1)",
];

/// Asserts that a program's pages say something of the program, of each subcommand, option and argument, and
/// that others refer to them.
/// `section` is the manual's: 1 for everybody's programs, 8 for the administrator's.
///
/// Writes them below the directory that [`DIRECTORY_VARIABLE`] names, if it names one.
///
/// # Panics
///
/// With what is not documented, or why a file can't be written.
pub fn assert_documented(command: Command, section: u8) {
    let command = built(command);
    let page = format!("{}({section})", command.get_name());
    assert!(PAGES.contains(&&*page), "{page} is none of {PAGES:?}");
    let missing = undocumented(&command);
    assert!(
        missing.is_empty(),
        "no help text for {}",
        missing.join(", ")
    );
    let Some(directory) = std::env::var_os(DIRECTORY_VARIABLE) else {
        return;
    };
    if let Err(error) = write(&command, section, Path::new(&directory)) {
        panic!("pages in {}: {error}", Path::new(&directory).display());
    }
}

/// With the names of subcommands as users write them, and without the subcommand `help`: it has no page.
fn built(command: Command) -> Command {
    let mut command = command.disable_help_subcommand(true);
    command.build();
    command
}

/// Commands and arguments without a help text, as users write them.
fn undocumented(command: &Command) -> Vec<String> {
    let name = command.get_bin_name().unwrap_or(command.get_name());
    let own = command.get_about().is_none().then(|| format!("`{name}`"));
    let arguments = command.get_arguments().filter(|argument| {
        !argument.is_hide_set()
            && argument.get_help().is_none()
            && argument.get_long_help().is_none()
    });
    let arguments = arguments.map(|argument| format!("`{name} {argument}`"));
    let below = shown_subcommands(command).flat_map(undocumented);
    own.into_iter().chain(arguments).chain(below).collect()
}

fn shown_subcommands(command: &Command) -> impl Iterator<Item = &Command> {
    command.get_subcommands().filter(|one| !one.is_hide_set())
}

/// Writes a page for the program and one for each subcommand, and completions for each shell, with the
/// names that the shells look for.
fn write(command: &Command, section: u8, directory: &Path) -> io::Result<()> {
    let made = |name: &str| -> io::Result<PathBuf> {
        let made = directory.join(name);
        fs::create_dir_all(&made)?;
        Ok(made)
    };
    write_manual(command, command, section, &made("man")?)?;
    let name = command.get_name();
    for (shell, below, file) in [
        (Shell::Bash, "bash", name.to_owned()),
        (Shell::Zsh, "zsh", format!("_{name}")),
        (Shell::Fish, "fish", format!("{name}.fish")),
    ] {
        let mut text = Vec::new();
        clap_complete::generate(shell, &mut command.clone(), name, &mut text);
        fs::write(made(below)?.join(file), text)?;
    }
    Ok(())
}

fn write_manual(
    program: &Command,
    command: &Command,
    section: u8,
    directory: &Path,
) -> io::Result<()> {
    let version = program.get_version().unwrap_or_default();
    let page = Man::new(command.clone())
        .section(section.to_string())
        .source(format!("RNIC {version}"))
        .manual("RNIC");
    let mut text = Vec::new();
    page.render(&mut text)?;
    text.extend(see_also(program, command, section).into_bytes());
    fs::write(directory.join(page.get_filename()), text)?;
    shown_subcommands(command).try_for_each(|one| write_manual(program, one, section, directory))
}

/// The last part of a page: the program's other pages.
fn see_also(program: &Command, command: &Command, section: u8) -> String {
    let own = |of: &Command| format!("{}({section})", of.get_name());
    let is_program = own(program) == own(command);
    let others = PAGES
        .iter()
        .filter(|page| !is_program || **page != own(program));
    let others: Vec<_> = others.copied().map(bold).collect();
    format!(".SH \"SEE ALSO\"\n{}\n", others.join(",\n"))
}

/// A reference to a page, with its hyphens as they are typed.
fn bold(page: &str) -> String {
    let (name, section) = page.split_at(page.find('(').unwrap_or(page.len()));
    format!("\\fB{}\\fR{section}", name.replace('-', "\\-"))
}

#[cfg(test)]
mod tests;
