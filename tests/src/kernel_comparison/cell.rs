//! The links on which both are measured.

#[derive(Clone, Copy, Debug)]
pub struct Cell {
    /// For the table and for `--only`.
    pub name: &'static str,
    pub what: &'static str,
    /// What the link does beside its rate and queue.
    impairments: &'static [&'static str],
    /// Whether its MTU changes when half of the bytes have passed.
    changes_mtu: bool,
}

/// What all links have: a rate that is below what either can do by itself, and a queue of
/// some 15 ms.
const RATE: &[&str] = &["--rate=300Mbit", "--queue=400p"];
/// And this delay each way, when no other is said: without it, the round trip time is what the
/// machine's scheduler makes of it, and what a loss costs depends on that.
const DELAY: &str = "--delay=500us";
/// The MTU after the change in mid-stream; it is 1500 before.
const SMALLER_MTU: u16 = 1400;
/// Bytes of payload in a packet of 1500 bytes.
const PAYLOAD: u64 = 1448;

const fn cell(
    name: &'static str,
    what: &'static str,
    impairments: &'static [&'static str],
) -> Cell {
    Cell {
        name,
        what,
        impairments,
        changes_mtu: false,
    }
}

impl Cell {
    pub const ALL: [Self; 10] = [
        cell("clean", "nothing", &[]),
        cell("loss-0.1", "0.1 % loss", &["--loss=0.1%"]),
        cell("loss-1", "1 % loss", &["--loss=1%"]),
        cell("loss-5", "5 % loss", &["--loss=5%"]),
        cell(
            "reorder",
            "2 % held back by up to 20 packets",
            &["--reorder=2%", "--reorder-by=20"],
        ),
        cell("duplicate", "2 % duplicated", &["--duplicate=2%"]),
        cell("corrupt", "0.5 % corrupted", &["--corrupt=0.5%"]),
        Self {
            changes_mtu: true,
            ..cell("mtu", "MTU 1500, then 1400 in mid-stream", &[])
        },
        cell("delay", "50 ms delay each way", &["--delay=50ms"]),
        cell(
            "mixed",
            "2 ms delay with 1 ms jitter, 0.05 % loss, 0.5 % reordering, 0.1 % duplicates, cut \
             segments",
            &[
                "--delay=2ms",
                "--jitter=1ms",
                "--loss=0.05%",
                "--reorder=0.5%",
                "--reorder-by=5",
                "--duplicate=0.1%",
                "--split=1%",
            ],
        ),
    ];

    /// One on which the kernel is not measured: as it comes, it finds no way out when nobody tells
    /// it of a smaller MTU.
    pub const SILENT: Self = Self {
        changes_mtu: true,
        ..cell(
            "mtu-silent",
            "MTU 1500, then 1400 in mid-stream, and nobody is told",
            &["--too-big=silent"],
        )
    };

    /// The cell of a name, of all ten.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|cell| cell.name == name)
    }

    /// linksim's options for a transfer of `bytes`.
    #[must_use]
    pub fn options(&self, bytes: u64, seed: u64) -> Vec<String> {
        let fixed = RATE.iter().chain(self.impairments);
        let mut options: Vec<String> = fixed.map(ToString::to_string).collect();
        if !options.iter().any(|option| option.starts_with("--delay")) {
            options.push(DELAY.to_owned());
        }
        options.push(format!("--seed={seed}"));
        if self.changes_mtu {
            let half = bytes / 2 / PAYLOAD;
            options.push(format!(
                "--change=after={half},toward=right,mtu={SMALLER_MTU}"
            ));
        }
        options
    }
}
