//! A client that keeps to no rule. For as long as it is told, processes of it come to the daemons, write nonsense
//! into everything that is shared, and go in every way that there is.
//!
//! What it does follows from its seed, up to the races that it is made of. It judges nothing: that
//! is for whoever watches the daemons and their other clients, as `tests/hostile_client.rs` does.

#![forbid(unsafe_code)]

mod chance;
mod heir;
mod life;
mod objects;
mod remote;
mod requests;
mod scribble;

use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use clap::Parser;

use chance::Chance;
use life::Life;
use rnic_tests::user;
use rustix::process::DumpableBehavior;

/// Processes at a time.
const AT_A_TIME: usize = 3;
/// The longest that one lives.
const LONGEST_LIFE: Duration = Duration::from_millis(1500);
/// Milliseconds by which a life may be longer than it was meant to be.
const OVERTIME: u64 = 3000;

/// Attacks the daemons for as long as it is told, and says how many lives that took.
#[derive(Debug, Parser)]
struct Cli {
    /// A daemon's socket.
    #[arg(long)]
    socket: PathBuf,
    /// Where the daemon has its interface: an address to listen on.
    #[arg(long)]
    address: SocketAddr,
    /// The socket of the daemon at the other end, for connections between the two.
    #[arg(long)]
    other: PathBuf,
    /// What all choices follow from.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// How long.
    #[arg(long, default_value_t = 10)]
    minutes: u64,
    /// As --minutes, more finely.
    #[arg(long, conflicts_with = "minutes")]
    seconds: Option<u64>,
    /// The user that the attackers are; root only.
    #[arg(long, default_value_t = 61_001)]
    uid: u32,
    /// Lives one life in this process, for as many milliseconds.
    #[arg(long, hide = true)]
    life: Option<u64>,
    /// Inherits what another process hands over on standard input, as its child by fork(2) would.
    #[arg(long, hide = true)]
    heir: bool,
}

fn main() {
    let cli = Cli::parse();
    if cli.heir {
        heir::inherit(Chance::new(cli.seed));
    } else if let Some(millis) = cli.life {
        user::become_for_good(cli.uid);
        // Otherwise what is in /proc of a process that has changed its user is root's.
        let own = rustix::process::set_dumpable_behavior(DumpableBehavior::Dumpable);
        own.expect("there is such a behaviour");
        let end = Instant::now() + Duration::from_millis(millis);
        let life = Life::new(&cli.socket, &cli.other, cli.address, Chance::new(cli.seed));
        life.live(end);
    } else {
        attack(&cli);
    }
}

/// Starts life after life; some are killed in the middle.
fn attack(cli: &Cli) {
    let length = match cli.seconds {
        Some(seconds) => Duration::from_secs(seconds),
        None => Duration::from_secs(60 * cli.minutes),
    };
    println!("--seed {} makes the same choices again", cli.seed);
    let end = Instant::now() + length;
    let mut chance = Chance::new(cli.seed);
    let (mut lives, mut killed) = (0_u64, 0_u64);
    let mut running: Vec<(Child, Instant)> = Vec::new();
    while Instant::now() < end || !running.is_empty() {
        running.retain_mut(|(child, doom)| {
            let ended = child.try_wait().expect("a child of ours").is_some();
            if !ended && Instant::now() >= *doom {
                child.kill().expect("a child that was not waited for");
                killed += 1;
                child.wait().expect("a child of ours");
                return false;
            }
            !ended
        });
        if running.len() < AT_A_TIME && Instant::now() < end {
            let millis = 20 + chance.below(LONGEST_LIFE.as_millis() as u64);
            // One that is not killed early may still have caught itself in its own snares: an
            // eventfd that it filled and made blocking.
            let doom = match chance.one_in(3) {
                true => chance.below(millis),
                false => millis + OVERTIME,
            };
            let doom = Instant::now() + Duration::from_millis(doom);
            running.push((begin_life(cli, chance.next(), millis), doom));
            lives += 1;
        }
        std::thread::sleep(Duration::from_millis(2));
    }
    println!("{lives} lives, {killed} of them killed");
}

fn begin_life(cli: &Cli, seed: u64, millis: u64) -> Child {
    let program = std::env::current_exe().expect("it knows its own path");
    let mut command = Command::new(program);
    command.arg("--socket").arg(&cli.socket);
    command.arg("--other").arg(&cli.other);
    command.args(["--address", &cli.address.to_string()]);
    command.args(["--seed", &seed.to_string()]);
    command.args(["--uid", &cli.uid.to_string()]);
    command.args(["--life", &millis.to_string()]);
    // What it stumbles over is no news.
    command.stdin(Stdio::null()).stderr(Stdio::null());
    command.spawn().expect("a process can be started")
}
