//! The commands of docs/linksim.md, run as they are there, with the `ip`, `tc` and `ethtool` of this host.

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc;
use std::time::Duration;

use rnic_tests::binary;

const DOCUMENT: &str = include_str!("../../../docs/linksim.md");
/// How long two hosts may take to hear of each other.
const LIMIT: Duration = Duration::from_secs(30);
const ANSWERS: usize = 5;

fn blocks(language: &str) -> Vec<&'static str> {
    let begin = format!("```{language}\n");
    let blocks = DOCUMENT.split(&begin).skip(1);
    blocks
        .map(|rest| rest.split_once("```").expect("an end of the block").0)
        .collect()
}

/// Kills it when it is dropped.
struct Shell(Child);

impl Drop for Shell {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn the_first_example_joins_two_hosts_as_it_is_written() {
    let example = blocks("sh")[0];
    assert!(example.contains("\nip netns exec left ping "), "{example}");
    // Network namespaces that nobody else sees, and that end with the shell, as all programs in them.
    let script = format!("mkdir -p /run/netns\nmount -t tmpfs none /run/netns\n{example}");
    let linksim = binary::path("linksim");
    let programs = linksim.parent().expect("a directory").display();
    let path = std::env::var("PATH").unwrap_or_default();
    let mut shell = Command::new("unshare");
    let shell = shell
        .args(["--mount", "--net", "--pid", "--fork", "--kill-child"])
        .args(["sh", "-e", "-c", &script])
        .env("PATH", format!("{programs}:{path}"))
        .stdin(Stdio::null())
        .stdout(Stdio::piped());
    let mut shell = Shell(shell.spawn().expect("unshare starts"));
    let output = shell.0.stdout.take().expect("a pipe was asked for");
    let (answers, come) = mpsc::channel();
    std::thread::spawn(move || {
        let lines = BufReader::new(output).lines().map_while(Result::ok);
        for line in lines.filter(|line| line.contains("bytes from 198.18.0.2")) {
            if answers.send(line).is_err() {
                return;
            }
        }
    });
    for _ in 0..ANSWERS {
        let line = come.recv_timeout(LIMIT).unwrap_or_else(|error| {
            panic!("no answer to ping ({error}): is what is on standard error of the example's?")
        });
        // `time=40.3 ms`: 20 ms each way.
        let time = line
            .split("time=")
            .nth(1)
            .and_then(|rest| rest.split(' ').next());
        let time: f64 = time.and_then(|time| time.parse().ok()).expect("a time");
        assert!(time >= 40.0, "{line}");
    }
}

#[test]
fn every_other_example_says_what_linksim_takes() {
    let commands: Vec<&str> = blocks("sh")[1..]
        .iter()
        .flat_map(|block| block.lines())
        .filter(|line| !line.starts_with('#'))
        .collect();
    assert!(commands.len() >= 5, "{commands:?}");
    let check = |options: &[&str]| {
        let command = Command::new(binary::path("linksim"))
            .args(options)
            .arg("--check")
            .output()
            .expect("linksim starts");
        let told = String::from_utf8_lossy(&command.stderr);
        assert!(command.status.success(), "{options:?}: {told}");
    };
    for command in commands {
        let mut words = command.split_whitespace();
        assert_eq!(words.next(), Some("linksim"), "{command}");
        check(&words.collect::<Vec<_>>());
    }
    let directory = tempfile::tempdir().expect("a directory");
    for (number, file) in blocks("toml").iter().enumerate() {
        let path = directory.path().join(format!("{number}.toml"));
        std::fs::write(&path, file).expect("a file");
        check(&["--config", path.to_str().expect("ASCII")]);
    }
}
